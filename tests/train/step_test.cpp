// One step: the gradient of the memory table, iterations made again, products of whole numbers.
#include "train/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/cpu_level.h"
#include "support.h"

namespace dormouse::train {
namespace {

StepData step_of(const RunConfig& config, const std::string& text) {
  data::Batch batch{.rows = config.train.batch, .seq_len = config.train.seq_len, .bytes = {}};
  batch.bytes.assign(text.begin(), text.begin() + batch.rows * (batch.seq_len + 1));
  return make_step_data({batch}, config.model);
}

TEST(Step, TheGradientOfTheMemoryIsThatOfItsOwnRowsAndOfNoStepBefore) {
  RunConfig config = testing::small_config(2, 24);
  config.model.engram_rows = 256;
  config.train.retract_every = 1000;  // a step of rate 0 changes nothing then
  const std::string text = testing::some_text(400);
  const StepData first = step_of(config, text), second = step_of(config, text.substr(200));
  ASSERT_NE(first.touched, second.touched);
  Trainer trainer(config, network::make_parameters(config.model, 1)), alone(config, network::make_parameters(config.model, 1));
  trainer.step(first, {0, 0}, false);
  trainer.step(second, {0, 0}, false);
  alone.step(second, {0, 0}, false);
  const auto& gradient = trainer.parameters().engram.table.grad;
  const auto& expected = alone.parameters().engram.table.grad;
  std::int64_t written = 0;
  for (std::int64_t row = 0; row < gradient.dim(0); ++row) {
    const bool touched = std::binary_search(second.touched.begin(), second.touched.end(), static_cast<std::uint32_t>(row));
    for (std::int64_t j = 0; j < gradient.cols(); ++j) {
      const double value = gradient.at(row * gradient.cols() + j);
      written += value != 0 ? 1 : 0;
      EXPECT_EQ(value, touched ? expected.at(row * gradient.cols() + j) : 0) << row;
    }
  }
  EXPECT_GT(written, 0);
}

TEST(Step, RecomputingTheIterationsChangesNoBit) {
  RunConfig config = testing::small_config(2, 40);
  const StepData data = step_of(config, testing::some_text(400));
  Trainer keeps(config, network::make_parameters(config.model, 1));
  config.train.recompute = true;
  Trainer recomputes(config, network::make_parameters(config.model, 1));
  for (int step = 0; step < 5; ++step) {
    const StepResult a = keeps.step(data, {3e-3, 3e-3}, true), b = recomputes.step(data, {3e-3, 3e-3}, true);
    EXPECT_EQ(a.loss, b.loss) << step;
    EXPECT_EQ(a.rec_nats, b.rec_nats) << step;
    ASSERT_EQ(a.stats.size(), b.stats.size());
    for (std::size_t n = 0; n < a.stats.size(); ++n) EXPECT_EQ(a.stats[n].u_rms, b.stats[n].u_rms) << n;
    const auto ours = network::list(keeps.parameters(), config.model), theirs = network::list(recomputes.parameters(), config.model);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      for (std::int64_t j = 0; j < ours[i]->value.size(); ++j) {
        ASSERT_EQ(ours[i]->grad.at(j), theirs[i]->grad.at(j)) << ours[i]->name << " " << j;
        ASSERT_EQ(ours[i]->value.at(j), theirs[i]->value.at(j)) << ours[i]->name << " " << j;
      }
    }
  }
}

// i16 follows f32: the same losses within the rounding of its inputs, and not the very same.
TEST(Step, WholeNumbersTrainLikeF32) {
  if (!ops::native_i16()) GTEST_SKIP() << "no AVX2 on this machine";
  RunConfig config = testing::small_config(2, 40);
  config.model.d_model = 64;
  config.model.head_dim = 32;
  const StepData data = step_of(config, testing::some_text(400));
  Trainer exact(config, network::make_parameters(config.model, 1));
  config.train.compute = "i16";
  Trainer whole(config, network::make_parameters(config.model, 1));
  double largest = 0;
  for (int step = 0; step < 20; ++step) {
    const double a = exact.step(data, {3e-3, 3e-3}, false).loss, b = whole.step(data, {3e-3, 3e-3}, false).loss;
    largest = std::max(largest, std::abs(a - b));
  }
  EXPECT_LT(largest, 5e-3);
  EXPECT_GT(largest, 0);
}

}  // namespace
}  // namespace dormouse::train
