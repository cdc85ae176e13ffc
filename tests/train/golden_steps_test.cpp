// Ten optimizer steps at lr 1e-2 against the numpy statement (tests/oracle/make_fixtures.py): losses and every parameter's change.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "format/safetensors.h"
#include "layer/engram.h"
#include "network/dormouse/loop.h"
#include "optim/optimizer.h"
#include "table/keys.h"

namespace dormouse::train {
namespace {

using tensor::Tensor;

network::ModelConfig fixture_config() {
  network::ModelConfig c;
  c.d_model = 24;
  c.n_heads = 2;
  c.head_dim = 10;
  c.d_ffn = 40;
  c.rank = 6;
  c.n_experts = 2;
  c.max_iter = 3;
  c.max_seq_len = 20;
  c.engram_rows = 64;
  c.engram_dim = 4;
  return c;
}

void expect_golden_steps(const std::string& opt, const std::string& fixture) {
  const format::SafetensorsFile file(std::string(DORMOUSE_TEST_DIR) + "/network/fixtures/" + fixture);
  const auto read = [&](const std::string& name) {
    const auto* entry = file.find(name);
    if (entry == nullptr) throw std::runtime_error("fixture lacks " + name);
    return file.read(*entry);
  };
  const network::ModelConfig config = fixture_config();
  network::Parameters p = network::declare_parameters(config);
  network::for_each(p, config, [&](tensor::Parameter& one) { one.value = read("before." + one.name).clone(); });
  optim::Optimizer optimizer(network::list(p, config), {.opt = opt}, ops::cpu_table());

  const Tensor bytes = read("bytes");    // [10, 2, 21]
  const Tensor losses = read("losses");  // [10]
  const std::int64_t rows = bytes.dim(1);
  const std::int64_t time = bytes.dim(2) - 1;
  for (std::int64_t step = 0; step < bytes.dim(0); ++step) {
    std::vector<std::uint8_t> inputs;
    std::vector<std::uint8_t> targets;
    std::vector<std::uint32_t> keys(static_cast<std::size_t>(rows * time * 3));
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto* row = bytes.data<std::uint8_t>() + (step * rows + r) * (time + 1);
      inputs.insert(inputs.end(), row, row + time);
      targets.insert(targets.end(), row + 1, row + time + 1);
      table::ngram_keys(std::span(row, static_cast<std::size_t>(time)), config.engram_orders,
                        std::span(keys).subspan(static_cast<std::size_t>(r * time * 3), static_cast<std::size_t>(time * 3)));
    }
    for (auto* one : network::list(p, config)) one->zero_grad();
    autograd::Tape tape;
    const auto out = network::loop(tape, config, p, {.batch = rows, .time = time, .bytes = inputs, .keys = keys, .targets = targets});
    EXPECT_NEAR(out.loss.value().at(0), losses.at(step), 1e-3 * losses.at(step)) << "step " << step;
    tape.backward(out.loss);
    const auto touched = layer::engram_touched(keys, config.engram_rows);
    EXPECT_TRUE(optimizer.step({1e-2, 1e-2}, &touched).applied);
  }

  network::for_each(p, config, [&](tensor::Parameter& one) {
    const Tensor before = read("before." + one.name);
    const Tensor after = read("after." + one.name);
    double error = 0;
    double change = 0;
    double got_change = 0;
    double dot = 0;
    for (std::int64_t i = 0; i < before.size(); ++i) {
      const double want = after.at(i) - before.at(i);
      const double got = one.value.at(i) - before.at(i);
      error += (got - want) * (got - want);
      change += want * want;
      got_change += got * got;
      dot += want * got;
    }
    EXPECT_GT(change, 0) << one.name;
    EXPECT_LT(std::sqrt(error / change), 1e-3) << one.name;
    EXPECT_GT(dot / std::sqrt(change * got_change), 0.9999) << one.name;
  });
}

TEST(GoldenSteps, TenStepsOfMixMatchTheNumpyStatementInEveryParameter) { expect_golden_steps("mix", "steps.safetensors"); }

TEST(GoldenSteps, TenStepsOfMixDenseMatchTheNumpyStatementInEveryParameter) { expect_golden_steps("mix-dense", "steps_dense.safetensors"); }

}  // namespace
}  // namespace dormouse::train
