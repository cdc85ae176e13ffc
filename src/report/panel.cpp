#include "report/panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"

namespace dormouse::report {
namespace {

constexpr std::size_t kColours = 8;

std::string_view dash_of(std::size_t index) {
  if (index < kColours) return "";
  return index < 2 * kColours ? R"( stroke-dasharray="7 5")" : R"( stroke-dasharray="1 5")";
}

std::string clip_name(const Panel& panel) { return fmt::format("frame-{:.0f}-{:.0f}", panel.left, panel.top); }

}  // namespace

std::vector<DrawnPoint> Panel::place(std::span<const DrawnPoint> values) const {
  std::vector<DrawnPoint> pixels;
  for (const auto& [value_x, value_y] : values) {
    if (!std::isfinite(value_x)) continue;
    const bool shown = std::isfinite(value_y) && (!y.logarithmic || value_y > 0);
    pixels.push_back({pixel_x(value_x), shown ? pixel_y(value_y) : std::numeric_limits<double>::quiet_NaN()});
  }
  return pixels;
}

std::string xml_text(std::string_view text) {
  std::string out, plain;
  const auto flush = [&] {
    out += base::escape(plain, 1000);
    plain.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    constexpr std::string_view kMarkup = "&<>\"'\\";
    constexpr std::array<std::string_view, 6> kEntities = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;", "\\"};
    const auto rest = text.substr(i);
    if (const auto which = kMarkup.find(text[i]); which != std::string_view::npos) {
      flush();
      out += kEntities[which];
    } else if (rest.starts_with("\xEF\xBF\xBE") || rest.starts_with("\xEF\xBF\xBF")) {  // U+FFFE, U+FFFF: no XML characters
      plain += "\xEF\xBF\xBD";
      i += 2;
    } else {
      plain += text[i];
    }
  }
  flush();
  return out;
}

std::string shortened(const std::string& text, std::size_t most) {
  std::vector<std::string> characters;
  for (std::size_t at = 0; at < text.size(); at += characters.back().size()) {
    characters.push_back(text.substr(at, std::max<std::size_t>(1, base::utf8_length(text, at))));
  }
  if (characters.size() <= most) return text;
  std::string out;
  for (std::size_t i = 0; i < characters.size(); ++i) {
    if (i == most / 2) out += "\xE2\x80\xA6";
    if (i < most / 2 || i > characters.size() - most / 2) out += characters[i];
  }
  return out;
}

std::string text_at(double x, double y, std::string_view classes, std::string_view text, std::string_view anchor) {
  const std::string where = anchor == "start" ? "" : fmt::format(R"( text-anchor="{}")", anchor);
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\"{}>{}</text>\n", x, y, classes, where, xml_text(text));
}

std::string in_colour(std::size_t index, std::string_view name, const std::string& content, const Panel* panel) {
  const std::string clip = panel == nullptr ? "" : fmt::format(" clip-path=\"url(#{})\"", clip_name(*panel));
  return content.empty() ? ""
                         : fmt::format("<g class=\"r{}\"{}>\n<title>{}</title>\n{}</g>\n", index % kColours, clip, xml_text(name), content);
}

std::string frame(const Panel& panel) {
  const double right = panel.left + panel.width, bottom = panel.top + panel.height;
  std::string out =
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"><tspan class=\"h2\">{}</tspan><tspan class=\"soft\" dx=\"9\">{}</tspan></text>\n",
                  panel.left, panel.top - 14, xml_text(panel.title), xml_text(panel.note));
  // Room for markers on the sides and for signs below; above, curves end at the frame.
  out += fmt::format("<clipPath id=\"{}\"><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/></clipPath>\n",
                     clip_name(panel), panel.left - 6, panel.top - 2, panel.width + 12, panel.height + 14);
  for (const auto& [value, label] : ticks(panel.y, panel.height > 250 ? 7 : 5)) {
    const double y = panel.pixel_y(value);
    out += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", panel.left, y, right);
    out += text_at(panel.left - 9, y + 4, "tick", label, "end");
  }
  for (const auto& [value, label] : ticks(panel.x, panel.width > 600 ? 9 : 6)) {
    const double x = panel.pixel_x(value);
    out += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}v5\"/>\n", x, bottom);
    out += text_at(x, bottom + 19, "tick", label, "middle");
  }
  out += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", panel.left, bottom, right);
  return out + text_at(right, bottom + 35, "tick", panel.x_title, "end");
}

std::string curve(std::size_t index, std::string_view classes, std::span<const DrawnPoint> pixels) {
  const auto finite = [](const DrawnPoint& p) { return std::isfinite(p.y); };
  const auto first = std::find_if(pixels.begin(), pixels.end(), finite);
  if (first == pixels.end()) return "";
  if (std::none_of(first + 1, pixels.end(), finite)) {
    return fmt::format("<circle class=\"lone\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\"/>\n", first->x, first->y);
  }
  return fmt::format("<path class=\"{}\"{} d=\"{}\"/>\n", classes, dash_of(index), line_path(pixels));
}

std::string mark_sign(double x, double y, std::string_view event) {
  const std::string_view shape = event == "resume" ? "l4.5 8h-9z" : "l4.5 4.5l-4.5 4.5l-4.5 -4.5z";
  return fmt::format("<path class=\"sign\" d=\"M{:.1f} {:.1f}{}\"/>\n", x, y, shape);
}

std::string mark(double x, double top, double bottom, std::string_view event, std::string_view tooltip, bool hairline) {
  const std::string hair = hairline ? fmt::format("<path class=\"hair\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", x, top, bottom) : "";
  return fmt::format("<g><title>{}</title>{}{}</g>\n", xml_text(tooltip), hair, mark_sign(x, bottom, event));
}

}  // namespace dormouse::report
