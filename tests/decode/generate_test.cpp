#include "decode/generate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../network/support.h"
#include "base/error.h"

namespace dormouse::decode {
namespace {

using network::testing::perturb;
using network::testing::random_bytes;
using network::testing::small_config;

struct Fixture {
  network::ModelConfig config = small_config();
  network::Parameters parameters;
  Fixture() {
    config.max_seq_len = 24;
    parameters = network::make_parameters(config, 3);
    perturb(parameters, config, 4);
  }
};

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

TEST(Session, ReadingInPiecesAndByteByByteGiveTheSameLogits) {
  Fixture f;
  for (const std::int64_t depth : {0, 1, 2}) {
    const auto text = random_bytes(200, 5);
    Session chunks(f.config, f.parameters, depth), steps(f.config, f.parameters, depth), mixed(f.config, f.parameters, depth);
    chunks.read(text);
    for (const auto byte : text) steps.step(byte);
    mixed.read(std::span(text).first(1));
    mixed.step(text[1]);
    mixed.read(std::span(text).subspan(2, 61));
    for (std::size_t i = 63; i < text.size(); ++i) mixed.step(text[i]);
    EXPECT_LT(largest_difference(chunks.logits(), steps.logits()), 1e-4) << depth;
    EXPECT_LT(largest_difference(chunks.logits(), mixed.logits()), 1e-4) << depth;
    EXPECT_EQ(chunks.position(), 200);
    EXPECT_EQ(mixed.position(), 200);
  }
}

TEST(Session, TheStateRemembersMoreThanTheLastBytes) {
  Fixture f;
  auto a = random_bytes(60, 6), b = a;
  b[10] ^= 1;
  Session first(f.config, f.parameters), second(f.config, f.parameters);
  first.read(a);
  second.read(b);
  EXPECT_GT(largest_difference(first.logits(), second.logits()), 1e-6);
}

TEST(Session, ADepthTheModelLacksIsAUsageError) {
  Fixture f;
  EXPECT_THROW(Session(f.config, f.parameters, f.config.max_iter + 1), base::UsageError);
}

TEST(Generate, WritesExactlyTheBytesAskedForAndTheSameForTheSameSeed) {
  Fixture f;
  const auto write = [&](std::uint64_t seed, std::int64_t bytes) {
    Session session(f.config, f.parameters);
    Sampler sampler({}, seed);
    std::vector<std::uint8_t> out;
    const auto stats = generate(session, sampler, random_bytes(5, 1), bytes, [&](std::uint8_t byte) {
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
    Session session(f.config, f.parameters);
    Sampler sampler({.temperature = 0}, 1);
    std::vector<std::uint8_t> out;
    generate(session, sampler, prompt, 20, [&](std::uint8_t byte) {
      out.push_back(byte);
      return true;
    });
    return out;
  };
  EXPECT_EQ(write({}), write({'\n'}));
}

}  // namespace
}  // namespace dormouse::decode
