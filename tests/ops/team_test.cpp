#include "ops/cpu/team.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ops/cpu/parallel.h"

namespace dormouse::ops::cpu {
namespace {

class TeamTest : public testing::Test {
 protected:
  void TearDown() override { omp_set_num_threads(before_); }
  int before_ = omp_get_max_threads();
};

// The sum of 0 .. n-1, in pieces.
std::int64_t sum_to(std::int64_t n) {
  std::vector<std::int64_t> parts(64, 0);
  on_team([&](std::int64_t id, std::int64_t team) {
    for (std::int64_t i = n * id / team; i < n * (id + 1) / team; ++i) parts[static_cast<std::size_t>(id)] += i;
  });
  std::int64_t sum = 0;
  for (const std::int64_t part : parts) sum += part;
  return sum;
}

TEST_F(TeamTest, SplitGivesEveryIndexOnceAndThrowsWhatABodyThrew) {
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    Team::awake([&] {
      for (const std::int64_t n : {0, 1, 2, 7}) {
        for (const std::int64_t elements : {std::int64_t{1}, kSerialElements}) {
          std::vector<int> times(static_cast<std::size_t>(n), 0);
          split(n, elements, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) ++times[static_cast<std::size_t>(i)];
            EXPECT_EQ(team_size(), n == 1 || elements == 1 ? threads : 1);
          });
          EXPECT_EQ(times, std::vector<int>(static_cast<std::size_t>(n), 1));
        }
      }
      EXPECT_THROW(split(7, kSerialElements, [](std::int64_t, std::int64_t) { throw std::runtime_error("no"); }), std::runtime_error);
      EXPECT_EQ(sum_to(10), 45);
    });
  }
}

TEST_F(TeamTest, ThousandsOfPiecesAreEachDoneOnceByEveryThread) {
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    Team::awake([&] {
      EXPECT_EQ(team_size(), threads);
      const std::int64_t pieces = threads <= omp_get_num_procs() ? 5'000 : 500;  // those that sleep between two take longer
      for (std::int64_t i = 0; i < pieces; ++i) ASSERT_EQ(sum_to(i % 100), (i % 100) * (i % 100 - 1) / 2) << i;
    });
    EXPECT_EQ(Team::current(), nullptr);
  }
}

TEST_F(TeamTest, MoreThreadsThanProcessorsSleepInsteadOfSpinning) {
  omp_set_num_threads(4 * omp_get_num_procs());
  Team::awake([] {
    for (std::int64_t i = 0; i < 200; ++i) ASSERT_EQ(sum_to(1000), 499'500);
  });
}

TEST_F(TeamTest, WhatTheBodyThrowsPassesThroughAndTheNextTeamWorks) {
  omp_set_num_threads(2);
  EXPECT_THROW(Team::awake([] {
                 EXPECT_EQ(sum_to(10), 45);
                 throw std::runtime_error("body");
               }),
               std::runtime_error);
  EXPECT_EQ(Team::current(), nullptr);
  Team::awake([] { EXPECT_EQ(sum_to(10), 45); });
  EXPECT_THROW(Team::alone([] { throw std::runtime_error("body"); }), std::runtime_error);
  EXPECT_FALSE(Team::is_alone());
}

TEST_F(TeamTest, AloneHoldsInsideAwakeAndAPieceForksNoFurther) {
  omp_set_num_threads(2);
  Team::awake([] {
    Team::alone([] { EXPECT_EQ(team_size(), 1); });
    EXPECT_EQ(team_size(), 2);
    std::vector<int> inside(2, 0);
    on_team([&](int id, int) { inside[static_cast<std::size_t>(id)] = team_size(); });
    EXPECT_EQ(inside, (std::vector<int>{1, 1}));
  });
  Team::alone([] { Team::awake([] { EXPECT_EQ(team_size(), 1); }); });
}

TEST_F(TeamTest, LittleWorkIsDoneAloneAndMuchIsShared) {
  omp_set_num_threads(2);
  Team::fit(1000, [] { EXPECT_EQ(team_size(), 1); });
  Team::fit(100'000'000, [] { EXPECT_EQ(team_size(), 2); });
}

TEST_F(TeamTest, SharingRestsWhileOthersAreLateAndIsTriedAgain) {
  std::thread newcomer([] {  // how a thread was served before is its own
    omp_set_num_threads(2);
    const auto threads_of_late = [] {
      int threads = 0;
      Team::fit(100'000'000, [&] {
        threads = team_size();
        on_team([](int id, int team) {
          if (id == team - 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
      });
      return threads;
    };
    const auto calls_until = [&](int threads) {
      int calls = 1;
      while (threads_of_late() != threads && calls < 1000) ++calls;
      return calls;
    };
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(threads_of_late(), 2);
    if (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(4)) {
      EXPECT_EQ(threads_of_late(), 2) << "one call that was late is no reason yet";
    }
    EXPECT_LT(calls_until(1), 10);
    EXPECT_LT(calls_until(2), 1000);
  });
  newcomer.join();
}

}  // namespace
}  // namespace dormouse::ops::cpu
