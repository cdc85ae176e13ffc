#include "report/anchor_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace dormouse::report {
namespace {

constexpr std::size_t kMostLines = 16;  // whose labels fit beside the panel

// Few enough to read: unigram, the best Kneser-Ney, gzip and the best compressor, both after the training bytes.
std::vector<AnchorLine> chosen_anchors(const History& run) {
  const std::pair<std::string, double>*kneser_ney = nullptr, *compressor = nullptr, *gzip = nullptr, *unigram = nullptr;
  for (const auto& anchor : run.anchors) {
    const auto& [name, value] = anchor;
    if (name.starts_with("kneser-ney ") && (kneser_ney == nullptr || value < kneser_ney->second)) kneser_ney = &anchor;
    if (name.ends_with(" conditional") && (compressor == nullptr || value < compressor->second)) compressor = &anchor;
    if (name == "gzip conditional") gzip = &anchor;
    if (name == "unigram") unigram = &anchor;
  }
  std::vector<AnchorLine> lines;
  for (const auto* anchor : {unigram, gzip, compressor, kneser_ney}) {
    if (anchor == nullptr || !(anchor->second > 0) || (anchor == gzip && gzip == compressor)) continue;
    lines.push_back({anchor->first.substr(0, anchor->first.find(" conditional")), anchor->second, anchor == kneser_ney});
  }
  return lines;
}

std::string anchor_label(const AnchorLine& line, double x, double y, std::string_view sign = "") {
  return text_at(x, y, line.best ? "label strong" : "label", fmt::format("{} {:.3f}{}", line.name, line.bpb, sign));
}

}  // namespace

AnchorLines anchor_lines(std::span<const History> runs) {
  std::vector<AnchorLine> seen, lines;
  for (const auto& run : runs) {
    for (const auto& line : chosen_anchors(run)) {
      if (std::find(seen.begin(), seen.end(), line) != seen.end()) continue;
      const bool clash = std::any_of(seen.begin(), seen.end(), [&](const auto& other) { return other.name == line.name; });
      seen.push_back(line);
      lines.push_back(line);
      if (clash) lines.back().name += " (" + shortened(run.name, 10) + ")";
    }
  }
  const std::size_t all = lines.size();
  if (all > kMostLines) std::erase_if(lines, [](const auto& line) { return !line.best; });
  lines.resize(std::min(lines.size(), kMostLines));
  return {lines, all - lines.size()};
}

std::string draw_anchor(const Panel& panel, const AnchorLine& line) {
  if (panel.y.at(line.bpb) > 1) return "";
  return fmt::format("<path class=\"anchor{}\" d=\"M{:.1f} {:.1f}h{:.1f}\"/>\n", line.best ? " goal" : "", panel.left,
                     panel.pixel_y(line.bpb), panel.width);
}

std::string draw_anchors(const Panel& panel, std::vector<AnchorLine> lines) {
  constexpr double kApart = 15;
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.bpb > b.bpb; });
  std::vector<double> label_y;
  for (const auto& line : lines) {
    const double y = std::max(panel.top, panel.pixel_y(line.bpb));
    label_y.push_back(label_y.empty() ? y : std::max(y, label_y.back() + kApart));
  }
  double lowest = panel.top + panel.height;
  for (std::size_t i = lines.size(); i-- > 0; lowest = label_y[i] - kApart) label_y[i] = std::min(label_y[i], lowest);
  std::string out;
  const double right = panel.left + panel.width;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool above = panel.y.at(lines[i].bpb) > 1;
    out += draw_anchor(panel, lines[i]) + anchor_label(lines[i], right + 14, label_y[i] + 4, above ? " \xE2\x86\x91" : "");
    if (!above) {
      out += fmt::format("<path class=\"leader\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", right, panel.pixel_y(lines[i].bpb), right + 10,
                         label_y[i]);
    }
  }
  return out;
}

std::string draw_goal_label(const Panel& panel, const std::vector<AnchorLine>& lines, std::span<const History> runs,
                            double HistoryRow::*x) {
  constexpr double kEarly = 0.35;
  const auto is_goal = [](const AnchorLine& line) { return line.best; };
  const auto goal = std::find_if(lines.begin(), lines.end(), is_goal);
  if (std::count_if(lines.begin(), lines.end(), is_goal) != 1) return "";
  bool early = false;
  for (const auto& run : runs) {
    for (const auto& row : run.steps) early = early || (panel.x.at(row.*x) < kEarly && row.bpb < goal->bpb);
  }
  const double y = panel.pixel_y(goal->bpb);
  const bool below = !early && y + 14 < panel.top + panel.height;
  std::string out;
  for (const std::string_view classes : {"label strong halo", "label strong"}) {
    out += text_at(early ? panel.left + panel.width - 6 : panel.left + 6, below ? y + 15 : y - 6, classes,
                   fmt::format("{} {:.3f}", goal->name, goal->bpb), early ? "end" : "start");
  }
  return out;
}

}  // namespace dormouse::report
