#include "report/plot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/units.h"
#include "base/version.h"
#include "report/anchor_lines.h"
#include "report/panel.h"
#include "report/plot_style.h"

namespace dormouse::report {
namespace {

constexpr double kWidth = 1200, kMargin = 32, kGutter = 60, kAnchorGutter = 176;
constexpr double kRowHeight = 24, kLineHeight = 17;
constexpr double kWidePlot = kWidth - 2 * kMargin - kGutter - kAnchorGutter, kHalfPlot = (kWidth - 2 * kMargin - 44) / 2 - kGutter;
constexpr double kTallPlot = 330, kLowPlot = 180, kTitleRoom = 36, kAxisRoom = 62;
constexpr std::size_t kNoteWidth = 170;  // characters
constexpr int kColumns = 500, kMostMarkers = 60;
constexpr double kSmoothing = 0.02, kLeastSmoothing = 1.5;  // sigma: a share of the curve, points
constexpr double kFirstSteps = 0.05;                        // share of a run
constexpr std::size_t kFewRows = 20;

using Runs = std::span<const History>;
using Value = double HistoryRow::*;

std::string count(std::int64_t n) { return base::human_count(static_cast<std::uint64_t>(std::max<std::int64_t>(0, n))); }
std::string whole(double value) { return count(static_cast<std::int64_t>(value)); }
std::string bpb(double value) { return std::isfinite(value) ? fmt::format("{:.4f}", value) : "\xE2\x80\x93"; }

double last_step(const History& run) { return std::max(run.steps.back().step, run.evals.empty() ? 0 : run.evals.back().step); }

// ---- values of one panel --------------------------------------------------------------------------------------------------

std::vector<DrawnPoint> values(const std::vector<HistoryRow>& rows, Value x, Value y) {
  std::vector<DrawnPoint> out;
  for (const auto& row : rows) {
    if (!row.earlier) out.push_back({row.*x, row.*y});
  }
  return out;
}

// The branches that extensions left behind, a gap between two.
std::vector<DrawnPoint> earlier_values(const std::vector<HistoryRow>& rows, Value x, Value y) {
  std::vector<DrawnPoint> out;
  for (const auto& row : rows) {
    if (row.earlier && !out.empty() && row.*x <= out.back().x) out.push_back({out.back().x, std::numeric_limits<double>::quiet_NaN()});
    if (row.earlier) out.push_back({row.*x, row.*y});
  }
  return out;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

Range range_of(Runs runs, Value value, bool evals) {
  Range range;
  for (const auto& run : runs) {
    for (const auto& row : run.steps) range.add(row.*value);
    if (!evals) continue;
    for (const auto& row : run.evals) range.add(row.*value);
  }
  return range;
}

// Of the BPB after the first steps of each run, which would press all that follows into the lower half.
Range settled_bpb(Runs runs) {
  Range range;
  for (const auto& run : runs) {
    const double start = run.steps.size() < kFewRows ? 0 : kFirstSteps * last_step(run);
    for (const auto* rows : {&run.steps, &run.evals}) {
      for (const auto& row : *rows) {
        if (row.step >= start) range.add(row.bpb);
      }
    }
  }
  return range;
}

Axis x_axis(Runs runs, Value x) {
  const Unit unit = x == &HistoryRow::bytes ? Unit::bytes : x == &HistoryRow::elapsed ? Unit::seconds : Unit::count;
  return axis_from_zero(range_of(runs, x, true).high, unit);
}

std::string nothing(const Panel& panel) {
  return text_at(panel.left + panel.width / 2, panel.top + panel.height / 2, "soft", "no finite value logged", "middle");
}

// ---- curves ---------------------------------------------------------------------------------------------------------------

std::string smooth_curve(std::size_t index, std::string_view classes, const Panel& panel, const std::vector<DrawnPoint>& points) {
  const auto thin = thin_means(panel.place(points), kColumns);
  return curve(index, classes, smooth(thin, std::max(kLeastSmoothing, kSmoothing * static_cast<double>(thin.size()))));
}

std::string plain_curve(std::size_t index, std::string_view classes, const Panel& panel, const std::vector<DrawnPoint>& points) {
  return curve(index, classes, thin_means(panel.place(points), kColumns));
}

std::string dots(const Panel& panel, const std::vector<DrawnPoint>& points) {
  const std::string path = dot_path(thin_extremes(panel.place(points), kColumns));
  return path.empty() ? "" : fmt::format("<path class=\"raw\" d=\"{}\"/>\n", path);
}

std::string eval_markers(const Panel& panel, const History& run, Value x) {
  if (run.evals.size() > static_cast<std::size_t>(kMostMarkers)) return "";
  std::string out;
  for (const auto& row : run.evals) {
    if (row.earlier || !std::isfinite(row.bpb) || !std::isfinite(row.*x)) continue;
    out +=
        fmt::format("<circle class=\"point\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.4\"><title>{}</title></circle>\n", panel.pixel_x(row.*x),
                    panel.pixel_y(row.bpb), xml_text(fmt::format("{}, step {}: held-out {:.4f} BPB", run.name, whole(row.step), row.bpb)));
  }
  return out;
}

std::string draw_marks(const Panel& panel, const History& run) {
  constexpr double kApart = 6;
  constexpr std::size_t kMostHairlines = 20;
  std::string out;
  double last = -kApart;
  for (const auto& m : run.marks) {
    const double x = panel.pixel_x(m.step);
    if (!(x <= panel.left + panel.width) || std::abs(x - last) < kApart) continue;  // the notes count them all
    out += mark(x, panel.top, panel.top + panel.height, m.event,
                fmt::format("{} {} at step {}", run.name, m.event == "resume" ? "resumed" : "extended", whole(m.step)),
                run.marks.size() <= kMostHairlines);
    last = x;
  }
  return out;
}

std::string bpb_panel(Runs runs, Panel panel, Value x, const std::vector<AnchorLine>& anchors) {
  const bool over_steps = x == &HistoryRow::step;
  Range range = settled_bpb(runs);
  if (range.empty()) range.add(8.0);
  for (const auto& line : anchors) {
    if (line.best) range.add(line.bpb);
    range.low = std::min(range.low, line.bpb);
  }
  panel.x = x_axis(runs, x);
  panel.y = axis_log(range.low, range.high, 1.2, Unit::number);
  if (over_steps && panel.y.at(range_of(runs, &HistoryRow::bpb, true).high) > 1) panel.note = "the first steps leave at the top";
  std::string out = frame(panel);
  if (over_steps) out += draw_anchors(panel, anchors);
  for (const auto& line : anchors) out += !over_steps && line.best ? draw_anchor(panel, line) : "";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& [steps, evals] = std::tie(runs[i].steps, runs[i].evals);
    std::string content;
    if (over_steps) content += draw_marks(panel, runs[i]) + dots(panel, values(steps, x, &HistoryRow::bpb));
    content += plain_curve(i, "line was", panel, earlier_values(evals, x, &HistoryRow::bpb));
    content += smooth_curve(i, "line train", panel, values(steps, x, &HistoryRow::bpb));
    content += plain_curve(i, "line eval", panel, values(evals, x, &HistoryRow::bpb)) + eval_markers(panel, runs[i], x);
    out += in_colour(i, runs[i].name, content, &panel);
  }
  if (!over_steps) out += draw_goal_label(panel, anchors, runs, x);
  return out + (range_of(runs, &HistoryRow::bpb, true).empty() || range_of(runs, x, true).empty() ? nothing(panel) : "");
}

std::string value_panel(Runs runs, Panel panel, Value y, const std::function<Axis(Range)>& axis, bool noisy) {
  const Range range = range_of(runs, y, false);
  panel.x = x_axis(runs, &HistoryRow::step);
  panel.y = axis(range);
  std::string out = frame(panel);
  if (range.empty()) return out + nothing(panel);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto points = values(runs[i].steps, &HistoryRow::step, y);
    std::string content = draw_marks(panel, runs[i]);
    const auto draw = noisy ? smooth_curve : plain_curve;
    content += draw(i, "line was", panel, earlier_values(runs[i].steps, &HistoryRow::step, y));
    if (noisy) content += dots(panel, points);
    content += draw(i, "line", panel, points);
    out += in_colour(i, runs[i].name, content, &panel);
  }
  return out;
}

// ---- the sheet ------------------------------------------------------------------------------------------------------------

constexpr double kNumberColumns[] = {610, 716, 822, 940, 1052, 1168};

std::string table(Runs runs, double top) {
  const std::string_view heads[] = {"steps", "bytes seen", "time", "parameters", "held-out BPB", "best"};
  std::string out = text_at(kMargin + 34, top, "tick", "run");
  for (std::size_t c = 0; c < std::size(heads); ++c) out += text_at(kNumberColumns[c], top, "tick", heads[c], "end");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    const auto& last = run.evals.empty() || run.evals.back().step < run.steps.back().step ? run.steps.back() : run.evals.back();
    const double y = top + kRowHeight * static_cast<double>(i + 1);
    double best = std::numeric_limits<double>::quiet_NaN();
    for (const auto& row : run.evals) best = std::fmin(best, row.bpb);
    const std::string cells[] = {whole(last.step),
                                 std::isfinite(last.bytes) ? base::human_bytes(static_cast<std::uint64_t>(last.bytes)) : "\xE2\x80\x93",
                                 base::human_duration(last.elapsed),
                                 run.parameters > 0 ? count(run.parameters) : "\xE2\x80\x93",
                                 bpb(run.evals.empty() ? best : run.evals.back().bpb),
                                 bpb(best)};
    const std::vector<DrawnPoint> swatch = {{kMargin, y - 4.5}, {kMargin + 24, y - 4.5}};
    out += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kMargin, y - 17, kWidth - kMargin);
    out += in_colour(i, run.name, curve(i, "line eval", swatch));
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"><tspan class=\"name\">{}</tspan>{}</text>\n", kMargin + 34, y,
                       xml_text(shortened(run.name, 48)), run.ended ? "" : "<tspan class=\"soft\" dx=\"9\">not finished</tspan>");
    for (std::size_t c = 0; c < std::size(cells); ++c) out += text_at(kNumberColumns[c], y, "cell", cells[c], "end");
  }
  return out;
}

bool has_mark(Runs runs, std::string_view event) {
  return std::any_of(runs.begin(), runs.end(), [&](const History& run) {
    return std::any_of(run.marks.begin(), run.marks.end(), [&](const HistoryMark& m) { return m.event == event; });
  });
}

// What the signs mean, in one line.
std::string key(Runs runs, double y, bool has_anchors) {
  double x = kMargin;
  std::string out;
  const auto entry = [&](const std::string& sign, double sign_width, const std::string& text) {
    out += sign + text_at(x + sign_width + 7, y, "label", text);
    x += sign_width + 31 + 6.1 * static_cast<double>(text.size());
  };
  const auto line = [&](std::string_view classes) {
    return fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}h22\"/>\n", classes, x, y - 4);
  };
  out += "<g class=\"key\">\n";
  entry(line("line eval") + fmt::format("<circle class=\"point\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.4\"/>\n", x + 11, y - 4), 22,
        "held-out");
  entry(line("line train"), 22, "training, smoothed");
  const std::vector<DrawnPoint> sample = {{x + 2, y - 2}, {x + 8, y - 7}, {x + 14, y - 3}, {x + 20, y - 6}};
  entry(fmt::format("<path class=\"raw\" d=\"{}\"/>\n", dot_path(sample)), 22, "as logged");
  if (has_mark(runs, "resume")) entry(mark_sign(x + 5, y - 8, "resume"), 10, "resumed");
  if (has_mark(runs, "extend")) {
    entry(mark_sign(x + 5, y - 8, "extend"), 10, "extended");
    entry(line("line was"), 22, "before the extension");
  }
  if (has_anchors) entry(line("anchor"), 22, "anchors: other models of the same held-out bytes");
  return out + "</g>\n";
}

std::vector<std::string> notes(Runs runs, std::size_t anchors_left_out) {
  std::vector<std::string> out;
  std::vector<std::string> windows;
  for (const auto& run : runs) {
    const std::string window = run.window_bytes > 0 ? count(run.window_bytes) + " B" : "a window of unknown size";
    if (std::find(windows.begin(), windows.end(), window) == windows.end()) windows.push_back(window);
  }
  if (windows.size() == 1) out.push_back(fmt::format("BPB: bits per byte, lower is better; held-out over {} (fixed window).", windows[0]));
  if (windows.size() > 1) {
    out.push_back(fmt::format("BPB: bits per byte, lower is better. The held-out windows differ ({}): their figures do not compare.",
                              fmt::format("{}", fmt::join(windows, ", "))));
  }
  out.push_back(
      fmt::format("Curves of more than {} points are thinned: of each of {} columns the line keeps the mean, the dots the smallest and the "
                  "largest value.",
                  kColumns, kColumns));
  if (anchors_left_out > 0) {
    out.push_back(fmt::format("{} anchor{} of runs on other bytes left out.", anchors_left_out, anchors_left_out == 1 ? "" : "s"));
  }
  for (const auto& run : runs) {
    std::vector<std::string> parts;
    const auto part = [&](std::uint64_t n, std::string_view noun, std::string_view rest) {
      if (n > 0) parts.push_back(fmt::format("{} {}{}{}", base::human_count(n), noun, n == 1 ? "" : "s", rest));
    };
    part(static_cast<std::uint64_t>(std::count_if(run.marks.begin(), run.marks.end(), [](const auto& m) { return m.event == "resume"; })),
         "resume", "");
    part(run.torn_bytes, "byte", " of an unfinished last line left out");
    part(static_cast<std::uint64_t>(run.unreadable), "unreadable line", " left out");
    part(static_cast<std::uint64_t>(run.missing), "missing value", " drawn as gaps");
    part(static_cast<std::uint64_t>(run.repeated), "line", " logged again after a resume, drawn once");
    part(static_cast<std::uint64_t>(std::max<std::int64_t>(0, run.skipped)), "step", " skipped: not finite");
    if (!parts.empty()) out.push_back(fmt::format("{}: {}.", shortened(run.name, 64), fmt::join(parts, "; ")));
  }
  return out;
}

// Lines of at most about `width` bytes, broken at spaces.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const auto space = text.size() - at > width ? text.rfind(' ', at + width) : std::string::npos;
    const std::size_t end = space == std::string::npos || space <= at ? text.size() : space;
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

Panel half(int column, double top, std::string title, std::string note, std::string x_title) {
  const double left = kMargin + kGutter + column * (kHalfPlot + kGutter + 44);
  return {std::move(title), std::move(note), std::move(x_title), left, top, kHalfPlot, kLowPlot, {}, {}};
}

std::string title_of(Runs runs) { return runs.size() == 1 ? shortened(runs[0].name, 64) : fmt::format("{} runs", runs.size()); }

}  // namespace

std::string plot_svg(Runs runs) {
  const auto [anchors, anchors_left_out] = anchor_lines(runs);

  double y = kMargin + 22;
  std::string body =
      text_at(kMargin, y, "h1", title_of(runs)) + text_at(kWidth - kMargin, y, "tick", fmt::format("dormouse {}", base::version()), "end");
  y += 34;
  body += table(runs, y);
  y += kRowHeight * static_cast<double>(runs.size()) + 38;
  body += key(runs, y, !anchors.empty());

  y += 22 + kTitleRoom;
  body += bpb_panel(runs, {"Bits per byte", "", "steps", kMargin + kGutter, y, kWidePlot, kTallPlot, {}, {}}, &HistoryRow::step, anchors);
  y += kTallPlot + kAxisRoom + kTitleRoom;
  body += value_panel(
      runs, half(0, y, "Training loss", "cross-entropy, nats per byte", "steps"), &HistoryRow::ce,
      [](Range r) { return axis_log(r.low, r.high, 1.5, Unit::number); }, true);
  body += value_panel(
      runs, half(1, y, "Gradient norm", "before clipping", "steps"), &HistoryRow::gnorm,
      [](Range r) { return axis_log(r.low, r.high, 5, Unit::number); }, true);
  y += kLowPlot + kAxisRoom + kTitleRoom;
  body += value_panel(
      runs, half(0, y, "Learning rate", "", "steps"), &HistoryRow::lr, [](Range r) { return axis_linear(0, r.high, Unit::scientific); },
      false);
  body += value_panel(
      runs, half(1, y, "Speed", "training bytes per second", "steps"), &HistoryRow::bytes_per_s,
      [](Range r) { return axis_linear(0, r.high, Unit::count); }, true);
  y += kLowPlot + kAxisRoom + kTitleRoom;
  body += bpb_panel(runs, half(0, y, "Bits per byte", "over the bytes seen", "bytes"), &HistoryRow::bytes, anchors);
  body += bpb_panel(runs, half(1, y, "Bits per byte", "over training time", "time"), &HistoryRow::elapsed, anchors);
  y += kLowPlot + kAxisRoom;
  for (const auto& note : notes(runs, anchors_left_out)) {
    for (const auto& line : wrapped(note, kNoteWidth)) body += text_at(kMargin, y += kLineHeight, "tick", line);
  }
  y += kMargin;

  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"dormouse\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "role=\"img\" aria-label=\"Training curves of {2}\">\n<style>{3}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{4}"
      "</svg>\n",
      kWidth, y, xml_text(title_of(runs)), kSheetStyle, body);
}

std::string plot_html(Runs runs) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{} \xC2\xB7 "
      "dormouse</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n"
      "</html>\n",
      xml_text(title_of(runs)), kPageStyle, plot_svg(runs));
}

}  // namespace dormouse::report
