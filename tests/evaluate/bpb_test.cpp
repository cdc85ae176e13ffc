#include "evaluate/bpb.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "../network/support.h"
#include "base/error.h"

namespace dormouse::evaluate {
namespace {

using network::testing::perturb;
using network::testing::random_bytes;
using network::testing::SmallModel;

struct Fixture : SmallModel {
  Fixture() : SmallModel(16) {}
};

// -log2 softmax(logits)[label]
double bits(const float* logits, std::uint8_t label) {
  double sum = 0;
  for (int c = 0; c < 256; ++c) sum += std::exp(static_cast<double>(logits[c]));
  return (std::log(sum) - static_cast<double>(logits[label])) / std::numbers::ln2;
}

TEST(Bpb, ScoresEveryByteButTheFirstOnceInRowsWithZeroState) {
  Fixture f;
  for (const std::size_t n : {2U, 16U, 17U, 18U, 33U, 50U}) {
    const auto window = random_bytes(n, n);
    double total = 0;
    for (std::size_t begin = 0; begin + 1 < n; begin += 16) {
      const std::size_t length = std::min<std::size_t>(16, n - 1 - begin);
      const auto logits = row_logits(f.config, f.parameters, std::span(window).subspan(begin, length));
      for (std::size_t t = 0; t < length; ++t) total += bits(logits.data<float>() + t * 256, window[begin + t + 1]);
    }
    const auto result = bits_per_byte(f.config, f.parameters, window);
    EXPECT_EQ(result.bytes, static_cast<std::int64_t>(n));
    EXPECT_EQ(result.scored, static_cast<std::int64_t>(n) - 1);
    EXPECT_NEAR(result.bpb, total / static_cast<double>(n - 1), 1e-5) << n;
  }
}

TEST(Bpb, DoesNotDependOnTheBatch) {
  Fixture f;
  const auto window = random_bytes(500, 9);
  BpbOptions options;
  options.batch = 1;
  const auto one = bits_per_byte(f.config, f.parameters, window, options);
  for (const std::int64_t batch : {2, 3, 7, 64}) {
    options.batch = batch;
    const auto many = bits_per_byte(f.config, f.parameters, window, options);
    EXPECT_NEAR(one.bpb, many.bpb, 1e-6) << batch;
    EXPECT_NEAR(one.rec_bpb, many.rec_bpb, 1e-6) << batch;
    EXPECT_EQ(one.position_count, many.position_count);
  }
}

TEST(Bpb, TwoEvaluationsAgreeExactly) {
  Fixture f;
  const auto window = random_bytes(300, 11);
  const auto a = bits_per_byte(f.config, f.parameters, window), b = bits_per_byte(f.config, f.parameters, window);
  EXPECT_EQ(a.bpb, b.bpb);
  EXPECT_EQ(a.rec_bpb, b.rec_bpb);
}

TEST(Bpb, RowsLongerThanTheModelsAreReadInPiecesThatCarryTheState) {
  Fixture f;
  network::ModelConfig longer = f.config;
  longer.max_seq_len = 64;
  const auto window = random_bytes(150, 12);
  BpbOptions options;
  options.row = 64;
  const auto pieces = bits_per_byte(f.config, f.parameters, window, options);
  const auto whole = bits_per_byte(longer, f.parameters, window, options);
  EXPECT_NEAR(pieces.bpb, whole.bpb, 1e-5);
  options.row = 16;
  EXPECT_GT(std::abs(bits_per_byte(f.config, f.parameters, window, options).bpb - whole.bpb), 1e-4)
      << "rows of 16 forget; the carried state matters";
}

TEST(Bpb, BucketsHoldAllBits) {
  Fixture f;
  const auto window = random_bytes(200, 13);
  BpbOptions options;
  options.row = 50;
  const auto result = bits_per_byte(f.config, f.parameters, window, options);
  double total = 0;
  std::int64_t bytes = 0, next = 0;
  for (const auto& bucket : position_buckets(result)) {
    EXPECT_EQ(bucket.begin, next);
    next = bucket.end;
    total += bucket.bpb * static_cast<double>(bucket.bytes);
    bytes += bucket.bytes;
  }
  EXPECT_EQ(next, 50);
  EXPECT_EQ(bytes, 199);
  EXPECT_NEAR(total / 199, result.bpb, 1e-9);
}

TEST(Bpb, TheDepthCurveEndsAtTheModelsOwnDepth) {
  Fixture f;
  const auto window = random_bytes(100, 14);
  const auto curve = depth_curve(f.config, f.parameters, window);
  ASSERT_EQ(curve.size(), static_cast<std::size_t>(f.config.max_iter));
  EXPECT_EQ(curve.back().bpb, bits_per_byte(f.config, f.parameters, window).bpb);
  EXPECT_NE(curve.front().bpb, curve.back().bpb);
}

TEST(Bpb, TheProgressOfADepthCurveIsThatOfAllDepths) {
  Fixture f;
  BpbOptions options;
  options.row = 20;
  options.batch = 1;
  std::vector<double> shares;
  options.progress = [&](double share) { shares.push_back(share); };
  depth_curve(f.config, f.parameters, random_bytes(41, 14), options);  // two rows
  ASSERT_EQ(shares.size(), static_cast<std::size_t>(f.config.max_iter));
  for (std::size_t i = 0; i < shares.size(); ++i)
    EXPECT_DOUBLE_EQ(shares[i], (static_cast<double>(i) + 0.5) / static_cast<double>(shares.size()));
}

// Row c of the batch is scored on byte c at every position: exp(-nats) are the 256 probabilities that BPB is made of.
TEST(Bpb, TheScoredProbabilitiesOfThe256BytesSumToOne) {
  network::ModelConfig config = network::preset("tiny");
  config.engram_rows = 256;
  network::Parameters parameters = network::make_parameters(config, 5);
  perturb(parameters, config, 6, 0.05);
  float* scale = parameters.head.s.value.data<float>();
  for (std::int64_t i = 0; i < parameters.head.s.value.size(); ++i) scale[i] *= 4;  // far from uniform
  const std::int64_t time = 8;
  const auto one = random_bytes(static_cast<std::size_t>(time), 15);
  std::vector<std::uint8_t> inputs, targets;
  for (int c = 0; c < 256; ++c) {
    inputs.insert(inputs.end(), one.begin(), one.end());
    targets.insert(targets.end(), one.size(), static_cast<std::uint8_t>(c));
  }
  const auto keys = network::testing::keys_of(config, inputs, 256);
  autograd::Tape tape(false);
  const auto output =
      network::loop(tape, config, parameters, {.batch = 256, .time = time, .bytes = inputs, .keys = keys, .targets = targets});
  auto readouts = output.nats;
  readouts.push_back(output.final_nats);
  ASSERT_EQ(readouts.size(), 4U);
  for (const auto& readout : readouts) {
    for (std::int64_t p = 0; p < time; ++p) {
      double sum = 0, largest = 0;
      for (std::int64_t c = 0; c < 256; ++c) {
        const double probability = std::exp(-readout.value().at(c * time + p));
        sum += probability;
        largest = std::max(largest, probability);
      }
      EXPECT_NEAR(sum, 1, 1e-5) << p;
      EXPECT_GT(largest, 0.02) << "almost uniform probabilities prove nothing";
    }
  }
}

TEST(Bpb, NothingToScoreIsAnError) {
  Fixture f;
  const auto window = random_bytes(1, 1);
  EXPECT_THROW(bits_per_byte(f.config, f.parameters, window), base::Error);
  EXPECT_THROW(row_logits(f.config, f.parameters, {}), base::Error);
}

}  // namespace
}  // namespace dormouse::evaluate
