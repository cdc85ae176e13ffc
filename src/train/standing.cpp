#include "train/standing.h"

#include <cmath>
#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/shell.h"
#include "base/units.h"
#include "evaluate/anchors.h"

namespace dormouse::train {
namespace {

constexpr std::uint64_t kLargestFit = 32U << 20, kLargestCompressed = 8U << 20, kLargestLongOrders = 4U << 20;

struct Line {
  std::string name;
  double bpb = 0;
};

std::vector<Line> parse(const std::string& text) {
  std::vector<Line> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const auto space = line.rfind(' ');
    if (space != std::string::npos) lines.push_back({base::escape(line.substr(0, space)), std::strtod(line.c_str() + space + 1, nullptr)});
  }
  return lines;
}

const Line* best_of(const std::vector<Line>& lines, std::string_view prefix) {
  const Line* best = nullptr;
  for (const auto& line : lines) {
    if (line.name.starts_with(prefix) && std::isfinite(line.bpb) && (best == nullptr || line.bpb < best->bpb)) best = &line;
  }
  return best;
}

// "kneser-ney 1..8      4.769 3.566 ..." of the anchors "<family> <order>".
std::string orders(const std::vector<Line>& lines, const std::string& family) {
  std::string values;
  int count = 0;
  for (const auto& line : lines) {
    if (!line.name.starts_with(family + " ")) continue;
    values += fmt::format(" {:.3f}", line.bpb);
    ++count;
  }
  return count == 0 ? "" : fmt::format("\n  {:<24}{}", fmt::format("{} 1..{}", family, count), values);
}

// " gzip 3.524 ..." of the anchors "<name> <suffix>"; "" when none was computed.
std::string compressors(const std::vector<Line>& lines, const std::string& suffix) {
  std::string values;
  for (const auto& line : lines) {
    if (line.name.ends_with(" " + suffix)) {
      values += fmt::format(" {} {:.3f}", line.name.substr(0, line.name.size() - suffix.size() - 1), line.bpb);
    }
  }
  return values;
}

}  // namespace

std::string compute_anchors(const RunData& data, bool slow_compressors) {
  if (data.train.bytes > kLargestFit) return "";
  evaluate::AnchorOptions options;
  options.max_order = data.train.bytes > kLargestLongOrders ? 5 : 8;
  options.compressors = false;
  options.slow_compressors = slow_compressors;
  const auto fit = data::read_corpus(data.train);
  std::string text;
  const auto add = [&](const std::vector<evaluate::Anchor>& anchors) {
    for (const auto& anchor : anchors) {
      if (std::isfinite(anchor.bpb)) text += fmt::format("{} {}\n", anchor.name, anchor.bpb);
    }
  };
  add(evaluate::anchors(fit, data.window, options));
  if (data.train.bytes > kLargestCompressed) return text;
  try {
    add(evaluate::compressor_anchors(fit, data.window, options));
  } catch (const base::Error& error) {
    base::log_line(fmt::format("WARNING: the compressors are left out of the anchors: {}", error.what()));
  }
  return text;
}

std::vector<report::Metric> anchor_metrics(const std::string& anchors) {
  std::vector<report::Metric> metrics = {{"event", std::string("anchors")}};
  for (const auto& line : parse(anchors)) metrics.emplace_back(line.name, line.bpb);
  return metrics;
}

std::string to_beat(const std::string& anchors, std::int64_t window_bytes) {
  const auto lines = parse(anchors);
  const auto* best = best_of(lines, "kneser-ney");
  if (best == nullptr) return "not computed (corpus above 32 MiB): " + base::program() + " anchors HELD_OUT --fit PATH";
  const std::string others = compressors(lines, "conditional");
  return fmt::format("{} {:.3f} BPB on the same {} bytes{}", best->name, best->bpb,
                     base::human_count(static_cast<std::uint64_t>(window_bytes)), others.empty() ? "" : ";" + others);
}

std::string standing(const std::string& anchors, double bpb) {
  const auto lines = parse(anchors);
  std::string text = fmt::format("  {:<24} {:.4f} bits per byte", "this model", bpb);
  if (lines.empty()) return text;
  text += fmt::format("\n  {:<24}", "uniform, unigram");
  for (const auto& line : lines) {
    if (line.name == "uniform" || line.name == "unigram") text += fmt::format(" {:.3f}", line.bpb);
  }
  text += orders(lines, "kneser-ney") + orders(lines, "witten-bell");
  for (const auto& line : lines) {
    if (line.name.starts_with("compat")) text += fmt::format("\n  {:<24} {:.3f} (not a distribution)", line.name, line.bpb);
  }
  for (const std::string suffix : {"alone", "conditional"}) {
    const std::string values = compressors(lines, suffix);
    if (!values.empty()) text += fmt::format("\n  {:<24}{}", "compressors, " + suffix, values);
  }
  const Line *beaten = nullptr, *ahead = nullptr;  // the best it beats, the nearest it does not
  for (const auto& line : lines) {
    if (line.name.starts_with("compat")) continue;
    if (line.bpb > bpb && (beaten == nullptr || line.bpb < beaten->bpb)) beaten = &line;
    if (line.bpb <= bpb && (ahead == nullptr || line.bpb > ahead->bpb)) ahead = &line;
  }
  if (beaten != nullptr) text += fmt::format("\n  better than {} ({:.3f})", beaten->name, beaten->bpb);
  if (ahead != nullptr) text += fmt::format("{}next to beat: {} ({:.3f})", beaten != nullptr ? "; " : "\n  ", ahead->name, ahead->bpb);
  if (ahead == nullptr) text += " and everything else here";
  return text;
}

}  // namespace dormouse::train
