#include "report/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace dormouse::report {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();
constexpr double kSteepStart = 0.125;  // sigma grows by this a point

// The column of each x.
class Columns {
 public:
  Columns(std::span<const DrawnPoint> points, int columns)
      : low_(points.empty() ? 0 : points.front().x),
        scale_(points.empty() || !(points.back().x > low_) ? 0 : columns / (points.back().x - low_)),
        last_(columns - 1) {}
  int of(const DrawnPoint& point) const { return std::min(last_, static_cast<int>((point.x - low_) * scale_)); }

 private:
  double low_, scale_;
  int last_;
};

}  // namespace

std::vector<DrawnPoint> thin_extremes(std::span<const DrawnPoint> points, int columns) {
  std::vector<DrawnPoint> finite;
  std::copy_if(points.begin(), points.end(), std::back_inserter(finite), [](const auto& p) { return std::isfinite(p.y); });
  if (finite.size() <= 2 * static_cast<std::size_t>(columns)) return finite;
  const Columns column(finite, columns);
  std::vector<DrawnPoint> out;
  for (std::size_t i = 0; i < finite.size();) {
    std::size_t low = i, high = i, j = i;
    for (; j < finite.size() && column.of(finite[j]) == column.of(finite[i]); ++j) {
      if (finite[j].y < finite[low].y) low = j;
      if (finite[j].y > finite[high].y) high = j;
    }
    out.push_back(finite[std::min(low, high)]);
    if (low != high) out.push_back(finite[std::max(low, high)]);
    i = j;
  }
  return out;
}

std::vector<DrawnPoint> thin_means(std::span<const DrawnPoint> points, int columns) {
  if (points.size() <= static_cast<std::size_t>(columns)) return {points.begin(), points.end()};
  const Columns column(points, columns);
  std::vector<DrawnPoint> out;
  for (std::size_t i = 0; i < points.size();) {
    double x = 0, y = 0, n = 0;
    std::size_t j = i;
    for (; j < points.size() && column.of(points[j]) == column.of(points[i]); ++j) {
      if (!std::isfinite(points[j].y)) continue;
      x += points[j].x, y += points[j].y, ++n;
    }
    out.push_back(n > 0 ? DrawnPoint{x / n, y / n} : DrawnPoint{points[i].x, kGap});
    i = j;
  }
  return out;
}

std::vector<DrawnPoint> smooth(std::span<const DrawnPoint> points, double sigma) {
  std::vector<DrawnPoint> out(points.begin(), points.end());
  const auto n = static_cast<std::ptrdiff_t>(points.size());
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    auto& point = out[static_cast<std::size_t>(i)];
    const double width = std::min(sigma, kSteepStart * static_cast<double>(i));
    if (!std::isfinite(point.y) || width == 0) continue;
    const auto reach = static_cast<std::ptrdiff_t>(std::ceil(3 * width));
    double w = 0, wd = 0, wdd = 0, wy = 0, wdy = 0;  // sums of weight, weight * distance, ...
    for (std::ptrdiff_t j = std::max<std::ptrdiff_t>(0, i - reach); j <= std::min(n - 1, i + reach); ++j) {
      const double y = points[static_cast<std::size_t>(j)].y, d = static_cast<double>(j - i);
      if (!std::isfinite(y)) continue;
      const double weight = std::exp(-0.5 * d * d / (width * width));
      w += weight;
      wd += weight * d;
      wdd += weight * d * d;
      wy += weight * y;
      wdy += weight * d * y;
    }
    const double determinant = w * wdd - wd * wd;
    if (determinant > 1e-9 * w * w) point.y = (wdd * wy - wd * wdy) / determinant;
  }
  return out;
}

std::string line_path(std::span<const DrawnPoint> points) {
  std::string path;
  std::size_t length = 0;
  for (const auto& p : points) {
    if (std::isfinite(p.y)) {
      path += fmt::format("{}{:.1f} {:.1f}", length == 0 ? 'M' : 'L', p.x, p.y);
      ++length;
    } else {
      if (length == 1) path += "h0";
      length = 0;
    }
  }
  return length == 1 ? path + "h0" : path;
}

std::string dot_path(std::span<const DrawnPoint> points) {
  std::string path;
  for (const auto& p : points) {
    if (std::isfinite(p.y)) path += fmt::format("M{:.1f} {:.1f}h0", p.x, p.y);
  }
  return path;
}

}  // namespace dormouse::report
