// The whole tiny network on the reference column in f64 against central differences.
#include <gtest/gtest.h>

#include <cmath>

#include "support.h"

namespace dormouse::network {
namespace {

using namespace testing;

TEST(NetworkGradient, TinyPresetAgreesWithCentralDifferencesInF64) {
  ModelConfig config = preset("tiny");
  config.expert_init = "unit";  // experts that write from the start
  config.engram_rows = 64;
  Parameters p = make_parameters(config, 3);
  perturb(p, config, 4, 0.02);
  for_each(p, config, [](tensor::Parameter& one) { one.value = one.value.to(tensor::Dtype::f64); });
  const std::int64_t time = 19;
  const auto bytes = random_bytes(static_cast<std::size_t>(time), 5);
  const auto targets = random_bytes(static_cast<std::size_t>(time), 6);
  const auto keys = keys_of(config, bytes, 1);
  const LoopInput input{.batch = 1, .time = time, .bytes = bytes, .keys = keys, .targets = targets};
  const auto loss = [&] {
    autograd::Tape tape(false);
    return loop(tape, config, p, input).loss.value().at(0);
  };
  {
    autograd::Tape tape;
    const LoopOutput out = loop(tape, config, p, input);
    tape.backward(out.loss);
  }
  base::SplitMix64 random(7);
  for (tensor::Parameter* one : list(p, config)) {
    // Along a random direction of the whole tensor: every entry takes part. Step 1e-5 keeps both errors far below the tolerance.
    std::vector<double> direction(static_cast<std::size_t>(one->value.size()));
    double norm = 0;
    for (auto& x : direction) norm += std::pow(x = random.normal(), 2);
    for (auto& x : direction) x /= std::sqrt(norm);
    double slope = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) slope += direction[i] * one->grad.at(static_cast<std::int64_t>(i));
    double* w = one->value.data<double>();
    const double step = 1e-5;
    const auto move = [&](double by) {
      for (std::size_t i = 0; i < direction.size(); ++i) w[i] += by * direction[i];
    };
    move(step);
    const double up = loss();
    move(-2 * step);
    const double down = loss();
    move(step);
    const double measured = (up - down) / (2 * step);
    EXPECT_NEAR(slope, measured, 1e-5 * std::max(std::abs(measured), 1e-3)) << one->name;
  }
}

}  // namespace
}  // namespace dormouse::network
