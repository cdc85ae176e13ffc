#include "report/curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace dormouse::report {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();
using Points = std::vector<DrawnPoint>;

TEST(Curve, ThinningIsBoundedAndKeepsEverySpike) {
  Points points;
  base::SplitMix64 random(3);
  for (int i = 0; i < 100000; ++i) points.push_back({i * 0.01, static_cast<double>(random.next() % 1000)});
  points[12345].y = 1e6;
  points[67890].y = -1e6;
  const auto thin = thin_extremes(points, 500);
  EXPECT_LE(thin.size(), 1000U);
  int spikes = 0;
  for (std::size_t i = 0; i < thin.size(); ++i) {
    spikes += std::abs(thin[i].y) == 1e6 ? 1 : 0;
    if (i > 0) {
      EXPECT_LT(thin[i - 1].x, thin[i].x);
    }
  }
  EXPECT_EQ(spikes, 2);
  EXPECT_LE(thin_means(points, 500).size(), 500U);
}

TEST(Curve, FewPointsStayAsTheyAre) {
  const Points points = {{0, 1}, {1, kGap}, {2, 3}};
  EXPECT_EQ(line_path(thin_means(points, 3)), line_path(points));
  EXPECT_EQ(dot_path(thin_extremes(points, 3)), "M0.0 1.0h0M2.0 3.0h0");
}

TEST(Curve, MeansLeaveAGapWhereAColumnHoldsNothing) {
  Points points;
  for (int i = 0; i < 1000; ++i) points.push_back({static_cast<double>(i), i >= 300 && i < 600 ? kGap : 2.0});
  const std::string path = line_path(thin_means(points, 100));
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2);
  EXPECT_EQ(path.find("nan"), std::string::npos);
}

TEST(Curve, SmoothingKeepsStraightLinesToTheirEnds) {
  Points points;
  for (int i = 0; i < 200; ++i) points.push_back({static_cast<double>(i), 5.0 - 0.25 * i});
  const auto smoothed = smooth(points, 6);
  for (std::size_t i = 0; i < points.size(); ++i) EXPECT_NEAR(smoothed[i].y, points[i].y, 1e-6) << i;
}

TEST(Curve, SmoothingTakesNoiseAwayAndHasNoLag) {
  base::SplitMix64 random(4);
  Points points;
  for (int i = 0; i < 400; ++i)
    points.push_back({static_cast<double>(i), (i >= 200 ? 10.0 : 0.0) + static_cast<double>(random.next() % 1000) / 1000});
  const auto smoothed = smooth(points, 8);
  for (std::size_t i = 100; i < 170; ++i) EXPECT_NEAR(smoothed[i].y, 0.5, 0.3);
  EXPECT_NEAR(smoothed[199].y + smoothed[200].y, 11.0, 1.0) << "the step is where it was";
}

TEST(Curve, GapsStayAndTheirNeighboursAreSmoothed) {
  Points points;
  for (int i = 0; i < 100; ++i) points.push_back({static_cast<double>(i), i % 7 == 3 ? kGap : (i % 2 == 0 ? 1.0 : -1.0)});
  const auto smoothed = smooth(points, 5);
  for (std::size_t i = 0; i < points.size(); ++i) EXPECT_EQ(std::isnan(smoothed[i].y), std::isnan(points[i].y));
  for (std::size_t i = 45; i < 60; ++i) EXPECT_FALSE(std::abs(smoothed[i].y) > 0.3) << i;
}

TEST(Curve, PathsBeginAnewAfterAGapAndShowALonePoint) {
  EXPECT_EQ(line_path(Points{{0, 1}, {1, 2}, {2, kGap}, {3, 4}}), "M0.0 1.0L1.0 2.0M3.0 4.0h0");
  EXPECT_EQ(line_path(Points{{0, kGap}}), "");
  EXPECT_EQ(line_path({}), "");
}

}  // namespace
}  // namespace dormouse::report
