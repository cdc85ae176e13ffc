// One panel of a plot as SVG: title, grid, axes, curves of several runs, marks. Lengths in pixels of the drawing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/axis.h"
#include "report/curve.h"

namespace dormouse::report {

struct Panel {
  std::string title, note;  // the note stands behind the title, softer
  std::string x_title;
  double left = 0, top = 0, width = 0, height = 0;  // of the area inside the axes
  Axis x, y;

  std::vector<DrawnPoint> place(std::span<const DrawnPoint> values) const;  // values -> pixels
  double pixel_x(double value) const { return left + width * x.at(value); }
  double pixel_y(double value) const { return top + height * (1 - y.at(value)); }
};

inline constexpr int kMostRuns = 24;  // 8 colours, each solid, dashed and dotted

// The text as character data or a quoted attribute: markup escaped, what XML forbids shown as base::escape does.
std::string xml_text(std::string_view text);
// At most `most` characters, the middle left out.
std::string shortened(const std::string& text, std::size_t most);
// <text> at (x, y) with a class; anchor: "start", "middle" or "end".
std::string text_at(double x, double y, std::string_view classes, std::string_view text, std::string_view anchor = "start");
// <g> in the colour of run `index`, saying `name` to a pointer that rests on it; cut at the frame of `panel`, where one is given.
std::string in_colour(std::size_t index, std::string_view name, const std::string& content, const Panel* panel = nullptr);

std::string frame(const Panel& panel);
// A line with a class, in the dash pattern of run `index`; a disc when only one point is finite.
std::string curve(std::size_t index, std::string_view classes, std::span<const DrawnPoint> pixels);
// A small sign on the x axis, a triangle ("resume") or a diamond ("extend"), below a hairline.
std::string mark(double x, double top, double bottom, std::string_view event, std::string_view tooltip, bool hairline);
std::string mark_sign(double x, double y, std::string_view event);

}  // namespace dormouse::report
