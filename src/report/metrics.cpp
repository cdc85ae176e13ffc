#include "report/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "base/utf8.h"

namespace dormouse::report {
namespace {

constexpr std::string_view kTornLine = "{\"event\":\"torn\"";

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = base::utf8_length(text, at);
    const char c = text[at];
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += text.substr(at, length);
    }
    at += std::max<std::size_t>(1, length);
  }
  return out + '"';
}

std::string value_text(const MetricValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&value)) return json_string(*text);
  const double real = std::get<double>(value);
  if (!std::isfinite(real)) return "null";
  std::array<char, 64> digits = {};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), real).ptr};
}

// Bytes of the file up to and including its last newline.
std::uint64_t whole_lines(const base::File& file) {
  constexpr std::uint64_t kBlock = 64 * 1024;
  std::vector<std::uint8_t> block;
  for (std::uint64_t end = file.size(); end > 0;) {
    const std::uint64_t start = end - std::min(end, kBlock);
    block.resize(end - start);
    file.read_exactly_at(start, block);
    const auto newline = std::find(block.rbegin(), block.rend(), '\n');
    if (newline != block.rend()) return end - static_cast<std::uint64_t>(newline - block.rbegin());
    end = start;
  }
  return 0;
}

}  // namespace

std::string to_json(std::span<const Metric> metrics) {
  std::string out = "{";
  for (const auto& [name, value] : metrics) {
    if (out.size() > 1) out += ',';
    out += json_string(name) + ':' + value_text(value);
  }
  return out + '}';
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path) : file_(base::File::open_append(path)) {
  const base::File reader = base::File::open_read(path);
  const std::uint64_t whole = whole_lines(reader);
  std::string torn(file_.size() - whole, '\0');
  if (torn.empty()) return;
  reader.read_exactly_at(whole, {reinterpret_cast<std::uint8_t*>(torn.data()), torn.size()});
  mended_bytes_ = torn.size();
  if (nlohmann::json::accept(torn)) {
    file_.write(std::array<std::uint8_t, 1>{'\n'});
    return;
  }
  if (::ftruncate(file_.descriptor(), static_cast<off_t>(whole)) != 0) {
    throw base::Error(fmt::format("cannot cut the torn last line of \"{}\": {}", base::escape(path.native(), 1024), std::strerror(errno)));
  }
  if (torn.starts_with(kTornLine)) return;  // a mending that a full disk cut short is not wrapped once more
  write({{"event", "torn"}, {"bytes", static_cast<std::int64_t>(torn.size())}, {"text", torn}});
}

void MetricsWriter::write(std::initializer_list<Metric> metrics) { write_line({metrics.begin(), metrics.size()}); }

void MetricsWriter::write(const std::vector<Metric>& metrics) { write_line(metrics); }

void MetricsWriter::write_line(std::span<const Metric> metrics) {
  const std::string line = to_json(metrics) + '\n';
  file_.write(base::bytes_of(line));
}

}  // namespace dormouse::report
