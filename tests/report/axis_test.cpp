#include "report/axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dormouse::report {
namespace {

std::string labels(const Axis& axis, int wanted) {
  std::string out;
  for (const auto& tick : ticks(axis, wanted)) out += (out.empty() ? "" : "|") + tick.label;
  return out;
}

TEST(Axis, TicksAreRoundNumbersInOneUnitAndPrecision) {
  EXPECT_EQ(labels(axis_from_zero(3627, Unit::count), 9), "0|500|1,000|1,500|2,000|2,500|3,000|3,500");
  EXPECT_EQ(labels(axis_from_zero(2'300'000, Unit::count), 5), "0|0.5M|1.0M|1.5M|2.0M");
  EXPECT_EQ(labels(axis_from_zero(7.4e6, Unit::bytes), 4), "0|2 MB|4 MB|6 MB");
  EXPECT_EQ(labels(axis_from_zero(303, Unit::seconds), 5), "0|1 min|2 min|3 min|4 min|5 min");
  EXPECT_EQ(labels(axis_from_zero(90, Unit::seconds), 6), "0|15 s|30 s|45 s|1 min|1:15 min|1:30 min");
  EXPECT_EQ(labels(axis_from_zero(3 * 86400, Unit::seconds), 6), "0|12 h|1 d|1 d 12 h|2 d|2 d 12 h|3 d");
  EXPECT_EQ(labels(axis_linear(0, 0.003, Unit::scientific), 3), "0|1e-3|2e-3|3e-3");
  EXPECT_EQ(labels(axis_linear(1.912, 2.103, Unit::number), 5), "1.90|1.95|2.00|2.05|2.10|2.15");
}

TEST(Axis, LogarithmicTicksGrowDenserWhenTheRangeIsSmall) {
  EXPECT_EQ(labels(axis_log(0.1, 1e4, 2, Unit::number), 6), "0.1|1|10|100|1000|10000");
  EXPECT_EQ(labels(axis_log(1.7, 8.1, 2, Unit::number), 6), "2|3|4|6|8");
  EXPECT_EQ(labels(axis_log(1.7, 2.4, 1.2, Unit::number), 6), "1.7|1.8|1.9|2.0|2.1|2.2|2.3|2.4");
}

TEST(Axis, CountsOfFewStepsHaveNoFractions) { EXPECT_EQ(labels(axis_from_zero(1, Unit::count), 9), "0|1"); }

TEST(Axis, FlatEmptyAndExtremeRangesStillGiveAFiniteAxisWithFewTicks) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const auto& [low, high] : {std::pair{0.0, 0.0},
                                  {2.0, 2.0},
                                  {-3.0, -3.0},
                                  {1e-300, 1e-300},
                                  {1e300, 1e300},
                                  {kInfinity, -kInfinity},
                                  {1e-12, 1e12},
                                  {0.0, 1e-9},
                                  {-5.0, 7.0}}) {
    for (const auto unit : {Unit::number, Unit::count, Unit::bytes, Unit::seconds, Unit::scientific}) {
      for (const auto& axis : {axis_linear(low, high, unit), axis_log(low, high, 2, unit), axis_from_zero(high, unit)}) {
        EXPECT_TRUE(std::isfinite(axis.low) && std::isfinite(axis.high) && axis.low < axis.high) << low << " " << high;
        const auto found = ticks(axis, 6);
        EXPECT_LE(found.size(), 40U) << low << " " << high;
        for (const auto& tick : found) {
          EXPECT_GE(axis.at(tick.value), -1e-6);
          EXPECT_LE(axis.at(tick.value), 1 + 1e-6);
        }
      }
    }
  }
}

TEST(Axis, AtIsZeroAndOneAtTheEnds) {
  for (const auto& axis : {axis_linear(3, 9, Unit::number), axis_log(3, 900, 2, Unit::number)}) {
    EXPECT_NEAR(axis.at(axis.low), 0, 1e-12);
    EXPECT_NEAR(axis.at(axis.high), 1, 1e-12);
  }
  EXPECT_NEAR((Axis{1, 100, true, Unit::number}.at(10)), 0.5, 1e-12);
}

}  // namespace
}  // namespace dormouse::report
