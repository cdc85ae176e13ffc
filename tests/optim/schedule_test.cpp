#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace dormouse::optim {
namespace {

TEST(Schedule, WarmsUpHoldsAndDecaysToZeroAtTheHorizon) {
  const Schedule s = Schedule::for_steps(1e-4, 2000, 0.2);
  EXPECT_EQ(s.warm, 40);
  EXPECT_EQ(s.decay_start, 1600);
  EXPECT_EQ(s.decay_steps, 400);
  EXPECT_DOUBLE_EQ(s.at(0), 1e-4 / 40);
  EXPECT_DOUBLE_EQ(s.at(19), 5e-5);
  for (const std::int64_t flat : {39, 40, 1000, 1599, 1600}) EXPECT_DOUBLE_EQ(s.at(flat), 1e-4);
  EXPECT_NEAR(s.at(1700), 6.4952e-5, 1e-9);
  EXPECT_NEAR(s.at(1900), 1.25e-5, 1e-12);
  EXPECT_NEAR(s.at(1999), 1.25e-8, 1e-12);
  EXPECT_EQ(s.at(2000), 0);
  EXPECT_EQ(s.at(1'000'000), 0);
  EXPECT_FALSE(s.finished(1999));
  EXPECT_TRUE(s.finished(2000));
}

TEST(Schedule, DefaultsAreTwoPercentButTwentySteps) {
  EXPECT_EQ(Schedule::for_steps(1, 100, 0.35).warm, 20);
  EXPECT_EQ(Schedule::for_steps(1, 100, 0.35).decay_start, 65);
  EXPECT_EQ(Schedule::for_steps(1, 5000, 0.35).warm, 100);
  EXPECT_EQ(Schedule::for_steps(1, 5000, 0.35, 0.1).warm, 500);
  EXPECT_EQ(Schedule::for_steps(1, 50, 0.35, 0.02, 0).warm, 1);
}

TEST(Schedule, ShortAndUndecayedRunsStayFinite) {
  const Schedule one = Schedule::for_steps(1, 1, 0.35);
  EXPECT_GT(one.at(0), 0);
  EXPECT_TRUE(one.finished(1));
  const Schedule flat = Schedule::for_steps(1, 100, 0);
  EXPECT_EQ(flat.at(99), 1);
  EXPECT_TRUE(flat.finished(100));
  const Schedule all = Schedule::for_steps(1, 10, 1, 0, 0);
  EXPECT_EQ(all.at(0), 1);
  EXPECT_NEAR(all.at(5), std::pow(0.5, 1.5), 1e-15);
}

TEST(Schedule, TimeLimitHasNoHorizonUntilItIsLatched) {
  Schedule s = Schedule::for_time_limit(3e-3);
  EXPECT_DOUBLE_EQ(s.at(49), 1.5e-3);
  EXPECT_DOUBLE_EQ(s.at(1'000'000), 3e-3);
  EXPECT_FALSE(s.finished(1'000'000));
  s.decay_start = 650;
  s.decay_steps = 350;
  EXPECT_DOUBLE_EQ(s.at(649), 3e-3);
  EXPECT_NEAR(s.at(825), 3e-3 * std::pow(0.5, 1.5), 1e-12);
  EXPECT_FALSE(s.finished(999));
  EXPECT_TRUE(s.finished(1000));
}

TEST(Schedule, ImpossibleOnesAreRefused) {
  EXPECT_THROW(Schedule::for_steps(1, 0, 0.35), base::Error);
  EXPECT_THROW(Schedule::for_steps(1, 10, 1.5), base::Error);
  EXPECT_THROW(Schedule::for_steps(1, 10, std::nan("")), base::Error);
  EXPECT_THROW(Schedule::for_steps(1, 10, 0.35, -1), base::Error);
}

}  // namespace
}  // namespace dormouse::optim
