// Curves of a plot: thinning, smoothing, and their SVG path data. Coordinates are those of the drawing.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace dormouse::report {

// x never falls; a y that is not finite is a gap.
struct DrawnPoint {
  double x = 0, y = 0;
};

// At most 2 * columns of the finite points: x is cut into columns of equal width, and of each its smallest and largest y stay, so that
// a spike is never thinned away.
std::vector<DrawnPoint> thin_extremes(std::span<const DrawnPoint> points, int columns);
// At most `columns` points: the mean of each column, a gap where a column holds nothing finite. Fewer points than columns: as they are.
std::vector<DrawnPoint> thin_means(std::span<const DrawnPoint> points, int columns);
// Local linear regression over the index with a Gaussian weight (after Cleveland 1979, without its robustness): no lag, no bias on a
// slope, none at the ends. sigma in points, narrower near the start, where a loss falls steeply. Gaps stay and are smoothed across.
std::vector<DrawnPoint> smooth(std::span<const DrawnPoint> points, double sigma);

std::string line_path(std::span<const DrawnPoint> points);  // "M1 2L3 4", a new M after every gap; a lone point is a dot
std::string dot_path(std::span<const DrawnPoint> points);   // one zero-length stroke a point

}  // namespace dormouse::report
