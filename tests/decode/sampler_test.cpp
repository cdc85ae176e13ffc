#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace dormouse::decode {
namespace {

using Logits = std::array<float, 256>;

// Probabilities .5, .25, .125, .0625, .0625 of the bytes 10..14; nothing else.
Logits halves() {
  Logits x;
  x.fill(-100);
  x[10] = std::log(0.5F);
  x[11] = std::log(0.25F);
  x[12] = std::log(0.125F);
  x[13] = x[14] = std::log(0.0625F);
  return x;
}

std::array<int, 256> draw(const SamplerConfig& config, const Logits& logits, int n, std::span<const std::uint8_t> recent = {}) {
  Sampler sampler(config, 5);
  std::array<int, 256> count{};
  for (int i = 0; i < n; ++i) ++count[sampler.next(logits, recent)];
  return count;
}

TEST(Sampler, DrawsEachByteAsOftenAsItsProbabilitySays) {
  const auto count = draw({.temperature = 1}, halves(), 40000);
  const double expected[] = {0.5, 0.25, 0.125, 0.0625, 0.0625};
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(count[static_cast<std::size_t>(10 + i)] / 40000.0, expected[i], 0.012) << i;
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  EXPECT_NEAR(draw({.temperature = 0.5}, halves(), 40000)[10] / 40000.0, 0.25 / (0.25 + 0.0625 + 1.0 / 64 + 2.0 / 256), 0.012);
  const auto flat = draw({.temperature = 100}, halves(), 40000);
  EXPECT_NEAR(flat[10], flat[14], 0.2 * flat[10]);
}

TEST(Sampler, ZeroTemperatureTakesTheLikeliestAndTheLowestOfEquals) {
  EXPECT_EQ(draw({.temperature = 0}, halves(), 50)[10], 50);
  Logits ties{};
  ties[30] = ties[20] = 2;
  EXPECT_EQ(draw({.temperature = 0}, ties, 50)[20], 50);
}

TEST(Sampler, TopKTopPAndMinPKeepWhatTheyPromise) {
  const auto k = draw({.temperature = 1, .top_k = 2}, halves(), 3000);
  EXPECT_EQ(k[10] + k[11], 3000);
  EXPECT_GT(k[11], 0);
  EXPECT_EQ(draw({.temperature = 1, .top_k = 1}, halves(), 100)[10], 100);
  const auto p = draw({.temperature = 1, .top_p = 0.8}, halves(), 3000);  // .5 + .25 < .8 <= .5 + .25 + .125
  EXPECT_EQ(p[10] + p[11] + p[12], 3000);
  EXPECT_GT(p[12], 0);
  EXPECT_EQ(draw({.temperature = 1, .top_p = 1e-9}, halves(), 100)[10], 100);
  const auto m = draw({.temperature = 1, .min_p = 0.3}, halves(), 3000);  // .25 >= .3 * .5 > .125
  EXPECT_EQ(m[10] + m[11], 3000);
}

TEST(Sampler, TheRepeatPenaltyLowersBytesSeenRecently) {
  const std::uint8_t recent[] = {10};
  Logits x{};
  x[10] = 3;
  EXPECT_EQ(draw({.temperature = 0, .repeat_penalty = 1}, x, 1, recent)[10], 1);
  x[11] = 2;
  EXPECT_EQ(draw({.temperature = 0, .repeat_penalty = 2}, x, 1, recent)[11], 1);
  x.fill(-4);
  x[10] = -1;
  EXPECT_EQ(draw({.temperature = 0, .repeat_penalty = 5}, x, 1, recent)[10], 0) << "a negative logit is multiplied";
  std::vector<std::uint8_t> old(65, 7);
  old[0] = 10;
  EXPECT_EQ(draw({.temperature = 0, .repeat_penalty = 5}, x, 1, old)[10], 1) << "the 65th byte back is forgotten";
}

TEST(Sampler, WrongSettingsAreUsageErrorsAndBadLogitsErrors) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const SamplerConfig& config :
       {SamplerConfig{.temperature = -1}, SamplerConfig{.temperature = nan}, SamplerConfig{.top_k = -1}, SamplerConfig{.top_p = 0},
        SamplerConfig{.top_p = 1.1}, SamplerConfig{.min_p = -0.1}, SamplerConfig{.min_p = 2}, SamplerConfig{.repeat_penalty = 0}}) {
    EXPECT_THROW(validate(config), base::UsageError);
  }
  EXPECT_NO_THROW(validate({}));
  Logits x{};
  x[3] = std::numeric_limits<float>::quiet_NaN();
  Sampler sampler({}, 1);
  EXPECT_THROW(sampler.next(x, {}), base::Error);
}

}  // namespace
}  // namespace dormouse::decode
