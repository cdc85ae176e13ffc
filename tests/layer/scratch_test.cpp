#include "layer/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace dormouse::layer {
namespace {

struct Taken {
  float* at;
  std::int64_t floats;
};

// Fills every buffer with a value of its own and finds it whole afterwards.
void expect_apart(const std::vector<Taken>& taken) {
  for (std::size_t i = 0; i < taken.size(); ++i) std::fill_n(taken[i].at, taken[i].floats, static_cast<float>(i));
  for (std::size_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(taken[i].at) % 64, 0U) << i;
    EXPECT_EQ(std::count(taken[i].at, taken[i].at + taken[i].floats, static_cast<float>(i)), taken[i].floats) << i;
  }
}

const std::vector<std::int64_t> kSizes = {1, 15, 16, 17, 3000, 20'000, 1, 100'000, 5, 16'384};  // over several blocks at first

std::vector<Taken> take_all(Scratch& scratch) {
  std::vector<Taken> taken;
  for (const std::int64_t floats : kSizes) taken.push_back({scratch.take(floats), floats});
  return taken;
}

TEST(Scratch, BuffersAreAlignedAndLieApart) {
  Scratch scratch;
  expect_apart(take_all(scratch));
}

TEST(Scratch, FromItsSecondStepOnAllLiesInOneBlock) {
  Scratch scratch;
  scratch.restart();
  take_all(scratch);
  std::vector<Taken> before;
  for (int step = 0; step < 3; ++step) {
    scratch.restart();
    const auto taken = take_all(scratch);
    expect_apart(taken);
    for (std::size_t i = 1; i < taken.size(); ++i)
      EXPECT_EQ(taken[i].at - taken[i - 1].at, (taken[i - 1].floats + 15) / 16 * 16) << "step " << step << " buffer " << i;
    EXPECT_TRUE(before.empty() || taken[0].at == before[0].at) << "the block is kept";
    before = taken;
  }
}

TEST(Scratch, AFrameGivesBackWhatWasTakenInIt) {
  Scratch scratch;
  const Taken outer{scratch.take(100), 100};
  const float* inner = nullptr;
  for (int turn = 0; turn < 3; ++turn) {
    const Scratch::Frame frame(scratch);
    std::vector<Taken> taken = {outer, {scratch.take(50), 50}};
    EXPECT_TRUE(inner == nullptr || taken[1].at == inner) << turn;
    inner = taken[1].at;
    {
      const Scratch::Frame nested(scratch);
      const auto more = take_all(scratch);  // beyond the first block
      taken.insert(taken.end(), more.begin(), more.end());
      expect_apart(taken);
    }
    taken.resize(2);
    taken.push_back({scratch.take(7), 7});
    expect_apart(taken);
  }
  EXPECT_EQ(scratch.take(1), inner);
}

TEST(Scratch, AFrameAroundTheFirstBufferGivesItBack) {
  Scratch scratch;
  {
    const Scratch::Frame frame(scratch);
    expect_apart({{scratch.take(10), 10}});
  }
  expect_apart({{scratch.take(10), 10}, {scratch.take(20'000), 20'000}});
}

TEST(Scratch, WhatFramesNeedAtMostIsOneBlockAfterARestart) {
  Scratch scratch;
  const auto step = [&] {
    scratch.restart();
    float* first = scratch.take(16);
    float* last = nullptr;
    for (int turn = 0; turn < 4; ++turn) {
      const Scratch::Frame frame(scratch);
      for (const std::int64_t floats : kSizes) last = scratch.take(floats) + floats;
    }
    return last - first;
  };
  step();
  std::int64_t want = 16 + kSizes.back();
  for (std::size_t i = 0; i + 1 < kSizes.size(); ++i) want += (kSizes[i] + 15) / 16 * 16;
  EXPECT_EQ(step(), want);
  EXPECT_EQ(step(), want);
}

}  // namespace
}  // namespace dormouse::layer
