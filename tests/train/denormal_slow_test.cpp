// Denormal numbers must not slow a step: FTZ and DAZ are set in every worker.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/threads.h"
#include "support.h"
#include "train/feed.h"
#include "train/step.h"

namespace dormouse::train {
namespace {

// A Trainer whose weights are set back before every step, so that the optimizer meets them too. Every second weight is scaled.
class Contender {
 public:
  Contender(const RunConfig& config, double scale) : trainer_(config, network::make_parameters(config.model, 3)) {
    for (auto* parameter : network::list(trainer_.parameters(), config.model)) {
      parameters_.push_back(parameter);
      start_.push_back(parameter->value.clone());
      float* w = start_.back().data<float>();
      for (std::int64_t i = 0; i < start_.back().size(); i += 2) w[i] = static_cast<float>(scale * w[i]);
    }
  }

  double seconds(const StepData& data, double lr) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->value.copy_from(start_[i]);
    const auto begin = std::chrono::steady_clock::now();
    const auto result = trainer_.step(data, {lr, lr}, false);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(std::isfinite(result.loss));
    return took.count();
  }

 private:
  Trainer trainer_;
  std::vector<tensor::Parameter*> parameters_;
  std::vector<tensor::Tensor> start_;
};

// Median over repeats of (a step with weights scaled by `denormal`) / (one with weights scaled by 1e-3, the mean of those before and
// after it). Both are small, so that the decays of the attention, which its work depends on, are alike.
double slowdown(const RunConfig& config, const StepData& data, double denormal) {
  Contender plain(config, 1e-3), other(config, denormal);
  std::vector<double> ratios;
  for (int repeat = 0; repeat < 21; ++repeat) {
    const double before = plain.seconds(data, 1e-3);
    const double seconds = other.seconds(data, 1e-3);
    const double after = plain.seconds(data, 1e-3);
    if (repeat > 0) ratios.push_back(2 * seconds / (before + after));  // the first one warms up
  }
  std::nth_element(ratios.begin(), ratios.begin() + 10, ratios.end());
  return ratios[10];
}

TEST(Denormals, SlowAStepByAtMostAFifth) {
  base::set_threads(0);
  RunConfig config;
  config.model = network::preset("tiny");
  config.train.batch = 1;
  config.train.seq_len = 128;
  config.train.compute = "f32";
  data::Batch batch{1, 128, {}};
  const std::string text = testing::some_text(129);
  batch.bytes.assign(text.begin(), text.end());
  const double ratio = slowdown(config, make_step_data({batch}, config.model), 1e-39);
  printf("a step takes %.2f times as long when every second weight is denormal\n", ratio);
  EXPECT_LT(ratio, 1.2);
}

}  // namespace
}  // namespace dormouse::train
