#include "base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"

namespace dormouse::base {
namespace {

constexpr double kLongestDuration = 1e9;  // seconds, 31 years: still safe as nanoseconds in 64 bits

struct Suffix {
  std::string_view text;
  std::int64_t factor;
};
constexpr std::array<Suffix, 7> kSuffixes = {
    {{"", 1}, {"K", 1000}, {"M", 1000 * 1000}, {"G", 1000 * 1000 * 1000}, {"Ki", 1LL << 10}, {"Mi", 1LL << 20}, {"Gi", 1LL << 30}}};

// value * factor; nothing when the text is no count; INT64_MAX + 1 when it is a count that does not fit.
constexpr std::uint64_t kTooLarge = static_cast<std::uint64_t>(INT64_MAX) + 1;
std::optional<std::uint64_t> scaled_count(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc::result_out_of_range) value = kTooLarge;
  if (status != std::errc{} && value != kTooLarge) return std::nullopt;
  const std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const Suffix& suffix : kSuffixes) {
    if (rest != suffix.text) continue;
    if (value > static_cast<std::uint64_t>(INT64_MAX / suffix.factor)) return kTooLarge;
    return value * static_cast<std::uint64_t>(suffix.factor);
  }
  return std::nullopt;
}

std::optional<double> read_double(std::string_view text, std::chars_format format) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, format);
  if (status != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

std::int64_t parse_count(std::string_view text, std::string_view what, std::int64_t least, std::int64_t most) {
  const auto count = scaled_count(text);
  if (!count) throw UsageError(fmt::format("{}: \"{}\" is not a whole number; write it as 8, 2K or 64Ki", escape(what), escape(text)));
  const bool small = *count < static_cast<std::uint64_t>(least);
  if (!small && *count <= static_cast<std::uint64_t>(most)) return static_cast<std::int64_t>(*count);
  const std::string range = small && most == INT64_MAX ? fmt::format("at least {}", least) : fmt::format("from {} to {}", least, most);
  throw UsageError(fmt::format("{} {}: must be {}", escape(what), escape(text), range));
}

double parse_duration(std::string_view text, std::string_view what) {
  const auto refuse = [&] {
    throw UsageError(fmt::format("{}: \"{}\" is not a time span; write it as 90s, 10m, 1.5h or 1h30m", escape(what), escape(text)));
  };
  double total = 0;
  std::string_view rest = text, units = "hms";  // each once, the longest first
  do {
    const std::size_t end = rest.find_first_of(units);
    if (end == std::string_view::npos && rest.size() != text.size()) refuse();  // seconds without a unit stand alone
    const auto value = read_double(rest.substr(0, end), std::chars_format::fixed);
    if (!value || *value < 0) refuse();
    const char unit = end == std::string_view::npos ? 's' : rest[end];
    total += *value * (unit == 'h' ? 3600 : unit == 'm' ? 60 : 1);
    units.remove_prefix(units.find(unit) + 1);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (rest.size() > 1 && rest[0] == ' ') rest.remove_prefix(1);
  } while (!rest.empty());
  if (!(total > 0) || total > kLongestDuration) refuse();
  return total;
}

double parse_number(std::string_view text, std::string_view what) {
  const auto value = read_double(text, std::chars_format::general);
  if (!value) throw UsageError(fmt::format("{}: \"{}\" is not a finite number; write it as 3, 0.5 or 2e-4", escape(what), escape(text)));
  return *value;
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string human_count(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::string human_count(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", human_count(count), noun, count == 1 ? "" : "s");
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds > kLongestDuration) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  if (whole >= 3600) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

namespace {

// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({change, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::string_view* candidates, std::size_t count) {
  constexpr std::size_t kLongestWord = 100;
  if (word.size() > kLongestWord) return "";
  const std::size_t allowed = std::max<std::size_t>(1, word.size() / 3);
  std::string best;
  std::size_t best_distance = allowed + 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (candidates[i].size() > kLongestWord) continue;
    const std::size_t distance = edit_distance(word, candidates[i]);
    if (distance >= best_distance || distance >= word.size()) continue;
    best = candidates[i];
    best_distance = distance;
  }
  return best;
}

}  // namespace dormouse::base
