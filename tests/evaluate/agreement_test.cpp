#include "evaluate/agreement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "../network/support.h"
#include "base/error.h"
#include "decode/lanes.h"
#include "evaluate/bpb.h"

namespace dormouse::evaluate {
namespace {

using network::testing::perturb;
using network::testing::random_bytes;
using network::testing::SmallModel;

struct Fixture : SmallModel {
  Fixture() : SmallModel(16) {}
  network::Weights weights() { return network::read_weights(parameters, config); }
};

TEST(Agreement, AModelAgreesWithItselfAndScoresAsTheTrainingFormDoes) {
  Fixture f;
  const auto reference = f.weights();
  const std::vector others = {reference};
  for (const std::size_t n : {2U, 16U, 17U, 18U, 50U}) {
    const auto window = random_bytes(n, n);
    const auto result = agreement(reference, others, window).at(0);
    EXPECT_EQ(result.positions, static_cast<std::int64_t>(n));
    EXPECT_EQ(result.same_top, result.positions);
    EXPECT_EQ(result.largest, 0);
    EXPECT_EQ(result.mean, 0);
    EXPECT_NEAR(result.bpb, bits_per_byte(f.config, f.parameters, window).bpb, 1e-4) << n;
  }
}

TEST(Agreement, CountsWhatAnotherModelSaysOtherwise) {
  Fixture f;
  const auto reference = f.weights();
  perturb(f.parameters, f.config, 5, 0.02);
  const std::vector others = {reference, f.weights()};
  const auto window = random_bytes(40, 7);
  std::int64_t read = 0;
  const auto results = agreement(reference, others, window, 0, [&](std::int64_t positions) { read = positions; });
  EXPECT_EQ(read, 40);
  EXPECT_EQ(results.at(0).largest, 0);

  double largest = 0, sum = 0;
  std::int64_t same = 0;
  for (std::size_t begin = 0; begin < 40; begin += 16) {
    decode::Lanes a(reference, 1), b(others[1], 1);
    for (std::size_t t = begin; t < std::min<std::size_t>(begin + 16, 40); ++t) {
      a.step({&window[t], 1});
      b.step({&window[t], 1});
      std::size_t top_a = 0, top_b = 0;
      for (std::size_t c = 0; c < 256; ++c) {
        const double difference = std::abs(static_cast<double>(a.logits(0)[c]) - static_cast<double>(b.logits(0)[c]));
        largest = std::max(largest, difference);
        sum += difference;
        if (a.logits(0)[c] > a.logits(0)[top_a]) top_a = c;
        if (b.logits(0)[c] > b.logits(0)[top_b]) top_b = c;
      }
      same += top_a == top_b ? 1 : 0;
    }
  }
  const auto& other = results.at(1);
  EXPECT_GT(largest, 0);
  EXPECT_LT(same, 40);
  EXPECT_EQ(other.largest, largest);
  EXPECT_NEAR(other.mean, sum / (40 * 256), 1e-9);
  EXPECT_EQ(other.same_top, same);
  EXPECT_NEAR(other.bpb, bits_per_byte(f.config, f.parameters, window).bpb, 1e-4);
}

TEST(Agreement, RefusesALogitThatIsNotANumber) {
  Fixture f;
  const auto reference = f.weights();
  f.parameters.final_norm.value.data<float>()[0] = std::numeric_limits<float>::infinity();
  const std::vector others = {f.weights()};
  EXPECT_THROW(agreement(reference, others, random_bytes(4, 1)), base::Error);
}

}  // namespace
}  // namespace dormouse::evaluate
