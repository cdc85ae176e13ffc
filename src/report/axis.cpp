#include "report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/units.h"

namespace dormouse::report {
namespace {

constexpr double kGenerous = 1.1;  // so much denser than wanted is as good
constexpr double kSlack = 1e-9;    // of an axis' length: a tick on its very end counts as inside

// The round step (1, 2 or 5 times a power of ten) that cuts `range` into about `wanted` parts.
double round_step(double range, int wanted) {
  const double raw = range / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= kGenerous * factor * power) return factor * power;
  }
  return 10 * power;
}

double time_step(double range, int wanted) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400;
  constexpr std::array kSteps = {1.0,          2.0,          5.0,          10.0,  15.0,      30.0,      kMinute,   2 * kMinute, 5 * kMinute,
                                 10 * kMinute, 15 * kMinute, 30 * kMinute, kHour, 2 * kHour, 3 * kHour, 6 * kHour, 12 * kHour};
  const double raw = range / wanted;
  if (raw < 1) return round_step(range, wanted);
  for (const double step : kSteps) {
    if (raw <= kGenerous * step) return step;
  }
  return kDay * std::max(1.0, round_step(range / kDay, wanted));
}

double step_of(double range, int wanted, Unit unit) {
  if (unit == Unit::seconds) return time_step(range, wanted);
  const double step = round_step(range, wanted);
  return unit == Unit::count || unit == Unit::bytes ? std::max(1.0, step) : step;
}

// Digits after the point that tell multiples of `step` apart.
int decimals(double step) {
  int digits = 0;
  for (double scaled = step; digits < 9 && std::abs(scaled - std::round(scaled)) > 1e-6 * scaled; scaled *= 10) ++digits;
  return digits;
}

struct Prefix {
  double factor;
  const char* name;
};

// The largest of G, M, k that `high` reaches.
Prefix prefix_of(double high) {
  for (const Prefix prefix : {Prefix{1e12, "T"}, Prefix{1e9, "G"}, Prefix{1e6, "M"}, Prefix{1e3, "k"}}) {
    if (high >= prefix.factor) return prefix;
  }
  return {1, ""};
}

std::string time_label(double value, double step) {
  if (value == 0) return "0";
  if (step < 1) return fmt::format("{:.{}f} s", value, decimals(step));
  const auto s = static_cast<std::int64_t>(std::llround(value));
  if (s % 86400 == 0) return fmt::format("{} d", s / 86400);
  if (s >= 86400) return fmt::format("{} d {} h", s / 86400, s % 86400 / 3600);
  if (s % 3600 == 0) return fmt::format("{} h", s / 3600);
  if (s >= 3600) return fmt::format("{}:{:02} h", s / 3600, s % 3600 / 60);
  if (s % 60 == 0) return fmt::format("{} min", s / 60);
  return s >= 60 ? fmt::format("{}:{:02} min", s / 60, s % 60) : fmt::format("{} s", s);
}

std::string scientific_label(double value) {
  if (value == 0) return "0";
  const int exponent = static_cast<int>(std::floor(std::log10(value) + kSlack));
  return fmt::format("{:.3g}e{}", value / std::pow(10.0, exponent), exponent);
}

std::string label(double value, double step, double high, Unit unit) {
  if (unit == Unit::seconds) return time_label(value, step);
  if (unit == Unit::scientific) return scientific_label(value);
  if (unit == Unit::number) return fmt::format("{:.{}f}", value, decimals(step));
  if (value == 0) return "0";
  if (unit == Unit::count && high < 1e6 && decimals(step) == 0) return base::human_count(static_cast<std::uint64_t>(std::llround(value)));
  const auto [factor, name] = prefix_of(high);
  return fmt::format("{:.{}f}{}{}{}", value / factor, decimals(step / factor), unit == Unit::bytes ? " " : "", name,
                     unit == Unit::bytes ? "B" : "");
}

std::vector<Tick> linear_ticks(const Axis& axis, int wanted) {
  const double range = axis.high - axis.low, step = step_of(range, wanted, axis.unit);
  std::vector<Tick> out;
  for (double n = std::ceil(axis.low / step - kSlack); n * step <= axis.high + kSlack * range; ++n) {
    const double value = n * step + 0.0;  // no -0
    out.push_back({value, label(value, step, axis.high, axis.unit)});
  }
  return out;
}

// Multiples of powers of ten inside the axis.
std::vector<Tick> decade_ticks(const Axis& axis, std::span<const double> multiples) {
  std::vector<Tick> out;
  for (int e = static_cast<int>(std::floor(std::log10(axis.low))); std::pow(10.0, e) <= axis.high; ++e) {
    for (const double multiple : multiples) {
      const double value = multiple * std::pow(10.0, e);
      if (value < axis.low || value > axis.high) continue;
      const bool far = axis.unit == Unit::number && (value < 1e-3 || value >= 1e5);
      out.push_back({value, far ? scientific_label(value) : label(value, value, axis.high, axis.unit)});
    }
  }
  return out;
}

}  // namespace

double Axis::at(double value) const {
  if (logarithmic) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

Axis axis_from_zero(double high, Unit unit) { return {0, high > 0 && std::isfinite(high) ? high : 1, false, unit}; }

Axis axis_linear(double low, double high, Unit unit) {
  constexpr int kParts = 5;
  if (!(low <= high)) return {0, 1, false, unit};
  if (high == 0 && low == 0) high = 1;
  if (high - low < 1e-6 * std::max(std::abs(low), std::abs(high))) {  // a flat curve still gets an axis
    low -= 0.05 * std::abs(low);
    high += 0.05 * std::abs(high);
  }
  const double step = step_of(high - low, kParts, unit);
  low = std::floor(low / step + kSlack) * step;
  return {low, std::max(low + step, std::ceil(high / step - kSlack) * step), false, unit};
}

Axis axis_log(double low, double high, double ratio, Unit unit) {
  if (!(low > 0 && high / low > ratio)) return axis_linear(low, high, unit);
  const double room = std::pow(high / low, 0.04);
  return {low / room, high * room, true, unit};
}

std::vector<Tick> ticks(const Axis& axis, int wanted) {
  if (!axis.logarithmic) return linear_ticks(axis, wanted);
  constexpr std::array kSets = {std::array{1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}, std::array{1.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0},
                                std::array{1.0, 2.0, 5.0, 0.0, 0.0, 0.0, 0.0}, std::array{1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0}};
  for (const auto& set : kSets) {
    const auto used = static_cast<std::size_t>(std::find(set.begin(), set.end(), 0.0) - set.begin());
    auto found = decade_ticks(axis, std::span(set).first(used));
    if (static_cast<int>(found.size()) >= std::max(2, wanted - 2)) return found;
  }
  return linear_ticks(axis, wanted + 1);
}

}  // namespace dormouse::report
