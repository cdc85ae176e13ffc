// Axes of a plot: from values to [0, 1], and the round numbers to write beside them.
#pragma once

#include <string>
#include <vector>

namespace dormouse::report {

enum class Unit { number, count, bytes, seconds, scientific };

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  Unit unit = Unit::number;

  double at(double value) const;  // 0 at low, 1 at high
};

struct Tick {
  double value = 0;
  std::string label;
};

// From 0 to `high`, exactly. Nothing to show (high <= 0 or not finite): to 1.
Axis axis_from_zero(double high, Unit unit);
// Linear, its ends moved outwards to round numbers.
Axis axis_linear(double low, double high, Unit unit);
// Logarithmic with 4% of room at both ends when all is positive and high/low exceeds `ratio`; else axis_linear.
Axis axis_log(double low, double high, double ratio, Unit unit);

// About `wanted` round values inside the axis, labelled in one unit and to one precision.
std::vector<Tick> ticks(const Axis& axis, int wanted);

}  // namespace dormouse::report
