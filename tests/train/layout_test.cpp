// 8 rows at once, 2 by 4 and 1 by 8: one gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/random.h"
#include "support.h"
#include "train/step.h"

namespace dormouse::train {
namespace {

using Gradients = std::map<std::string, std::vector<double>>;

// Of the same eight rows, `batch` at a time.
Gradients gradients(std::int64_t batch) {
  constexpr std::int64_t kRows = 8, kTime = 24;
  RunConfig config = testing::small_config(batch, kTime);
  config.train.accum = kRows / batch;
  const std::string text = testing::some_text(kRows * (kTime + 1));
  StepData data;
  for (std::int64_t k = 0; k < kRows / batch; ++k) {
    data::Batch part;
    part.rows = batch;
    part.seq_len = kTime;
    const auto begin = static_cast<std::size_t>(k * batch * (kTime + 1));
    part.bytes.assign(text.begin() + static_cast<std::ptrdiff_t>(begin),
                      text.begin() + static_cast<std::ptrdiff_t>(begin) + batch * (kTime + 1));
    data.parts.push_back(make_micro_batch(part, config.model));
  }
  for (std::uint32_t row = 0; row < 3 * 64; ++row) data.touched.push_back(row);
  Trainer trainer(config, network::make_parameters(config.model, 1));
  EXPECT_TRUE(trainer.step(data, {0.0, 0.0}, false).applied);
  Gradients found;
  network::for_each(trainer.parameters(), config.model, [&](tensor::Parameter& p) {
    for (std::int64_t i = 0; i < p.grad.size(); ++i) found[p.name].push_back(p.grad.at(i));
  });
  return found;
}

TEST(BatchLayout, EightByOneTwoByFourAndOneByEightGiveOneGradientWithinOneInAHundredThousand) {
  const Gradients whole = gradients(8);
  for (const std::int64_t batch : {4, 2, 1}) {
    const Gradients parts = gradients(batch);
    ASSERT_EQ(parts.size(), whole.size());
    for (const auto& [name, expected] : whole) {
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        error += std::pow(parts.at(name)[i] - expected[i], 2);
        norm += std::pow(expected[i], 2);
      }
      EXPECT_GT(norm, 0) << name;
      EXPECT_LE(std::sqrt(error), 1e-5 * std::sqrt(norm)) << name << " in rows of " << batch;
    }
  }
}

}  // namespace
}  // namespace dormouse::train
