#include "decode/generate.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "../network/support.h"
#include "network/dormouse/weights.h"

namespace dormouse::decode {
namespace {

using network::testing::random_bytes;
using network::testing::SmallModel;

struct Fixture : SmallModel {
  network::Weights weights = network::read_weights(parameters, config);
};

TEST(Generate, WritesExactlyTheBytesAskedForAndTheSameForTheSameSeed) {
  Fixture f;
  const auto write = [&](std::uint64_t seed, std::int64_t bytes) {
    Lanes lanes(f.weights, 1);
    Sampler sampler({}, seed);
    std::vector<std::uint8_t> out;
    const auto stats = generate(lanes, 0, sampler, random_bytes(5, 1), bytes, [&](std::uint8_t byte) {
      out.push_back(byte);
      return out.size() < 300;
    });
    EXPECT_EQ(stats.prompt_bytes, 5);
    EXPECT_EQ(stats.written_bytes, static_cast<std::int64_t>(out.size()));
    return out;
  };
  EXPECT_EQ(write(1, 200).size(), 200U);
  EXPECT_EQ(write(1, 200), write(1, 200));
  EXPECT_NE(write(1, 200), write(2, 200));
  EXPECT_EQ(write(1, -1).size(), 300U);
  EXPECT_EQ(write(1, 0).size(), 0U);
}

TEST(Generate, AnEmptyPromptIsANewline) {
  Fixture f;
  const auto write = [&](std::vector<std::uint8_t> prompt) {
    Lanes lanes(f.weights, 1);
    Sampler sampler({.temperature = 0}, 1);
    std::vector<std::uint8_t> out;
    generate(lanes, 0, sampler, prompt, 20, [&](std::uint8_t byte) {
      out.push_back(byte);
      return true;
    });
    return out;
  };
  EXPECT_EQ(write({}), write({'\n'}));
}

TEST(Generate, ARequestLeavesNoTraceForTheNextHoweverItEnds) {
  Fixture f;
  Lanes lanes(f.weights, 2);
  const auto prompt = random_bytes(30, 1);
  const auto write = [&](Lanes& on, std::size_t lane) {
    Sampler sampler({.repeat_penalty = 1.3}, 5);
    std::vector<std::uint8_t> out;
    generate(on, lane, sampler, prompt, 100, [&](std::uint8_t byte) {
      out.push_back(byte);
      return true;
    });
    return out;
  };
  Lanes fresh(f.weights, 1);
  const auto want = write(fresh, 0);
  for (const std::size_t lane : {0, 1}) {
    EXPECT_EQ(write(lanes, lane), want) << lane;
    Sampler other({}, 6);
    generate(lanes, lane, other, random_bytes(200, 2), 50, [](std::uint8_t) { return true; });
    EXPECT_EQ(write(lanes, lane), want) << "after a foreign request";
    int left = 10;
    const auto stats = generate(lanes, lane, other, random_bytes(70, 3), -1, [&](std::uint8_t) { return --left > 0; });
    EXPECT_EQ(stats.written_bytes, 10);
    EXPECT_EQ(write(lanes, lane), want) << "after one stopped by its callback";
    const auto fail = [&](std::uint8_t) -> bool {
      if (++left == 5) throw std::runtime_error("gone");
      return true;
    };
    EXPECT_THROW(generate(lanes, lane, other, random_bytes(9, 4), 50, fail), std::runtime_error);
    EXPECT_EQ(write(lanes, lane), want) << "after one whose callback threw";
  }
}

}  // namespace
}  // namespace dormouse::decode
