// Training stays finite: many seeds, ragged row lengths, a learning rate that blows up.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/threads.h"
#include "sanitizer.h"
#include "support.h"
#include "train/checkpoint.h"
#include "train/directory.h"
#include "train/run.h"
#include "train/step.h"

namespace dormouse::train {
namespace {

RunConfig smallest(std::int64_t seq_len) {
  RunConfig config;
  auto& m = config.model;
  m.d_model = 8;
  m.n_heads = 2;
  m.head_dim = 4;
  m.d_ffn = 12;
  m.rank = 3;
  m.n_experts = 2;
  m.max_iter = 2;
  m.max_seq_len = std::max<std::int64_t>(seq_len, 2);
  m.engram_rows = 16;
  m.engram_dim = 2;
  config.train.batch = 2;
  config.train.seq_len = seq_len;
  config.train.lr = 1e-2;
  config.train.compute = "f32";
  return config;
}

StepData random_data(const RunConfig& config, std::uint64_t seed) {
  base::SplitMix64 random(seed);
  data::Batch batch;
  batch.rows = config.train.batch;
  batch.seq_len = config.train.seq_len;
  for (std::int64_t i = 0; i < batch.rows * (batch.seq_len + 1); ++i) batch.bytes.push_back(static_cast<std::uint8_t>(random.below(256)));
  return make_step_data({batch}, config.model);
}

void expect_finite(Trainer& trainer, const RunConfig& config, const std::string& what) {
  for (auto* p : network::list(trainer.parameters(), config.model)) {
    for (std::int64_t i = 0; i < p->value.size(); ++i) ASSERT_TRUE(std::isfinite(p->value.at(i))) << what << " " << p->name;
  }
}

TEST(Numerics, SeedsOfFiftyStepsStayFinite) {
  base::set_threads(1);
  const RunConfig config = smallest(16);
  for (std::uint64_t seed = 0; seed < (tests::kAddressSanitizer ? 5 : 50); ++seed) {
    Trainer trainer(config, network::make_parameters(config.model, seed));
    for (std::uint64_t step = 0; step < 50; ++step) {
      const auto result = trainer.step(random_data(config, seed * 1000 + step), {config.train.lr, config.train.lr}, false);
      ASSERT_TRUE(result.applied) << "seed " << seed << " step " << step;
      ASSERT_TRUE(std::isfinite(result.loss)) << "seed " << seed << " step " << step;
    }
    expect_finite(trainer, config, "seed " + std::to_string(seed));
    EXPECT_LT(trainer.optimizer().max_ortho(), 1e-3);
  }
  base::set_threads(0);
}

TEST(Numerics, RaggedRowLengthsTrain) {
  for (const std::int64_t t : {1, 2, 15, 16, 17, 33, 257}) {
    const RunConfig config = smallest(t);
    Trainer trainer(config, network::make_parameters(config.model, 1));
    for (std::uint64_t step = 0; step < 2; ++step) {
      const auto result = trainer.step(random_data(config, step), {config.train.lr, config.train.lr}, true);
      EXPECT_TRUE(result.applied) << t;
      EXPECT_NEAR(result.nats, 5.5, 1.5) << t;
      EXPECT_EQ(result.stats.size(), 2U);
    }
    expect_finite(trainer, config, "t " + std::to_string(t));
  }
}

TEST(Numerics, APoisonedWeightMakesTheStepANoOp) {
  const RunConfig config = smallest(16);
  Trainer trainer(config, network::make_parameters(config.model, 1));
  trainer.step(random_data(config, 0), {config.train.lr, config.train.lr}, false);
  float& weight = trainer.parameters().memory_dense.value.data<float>()[3];
  weight = std::numeric_limits<float>::quiet_NaN();
  const auto before = trainer.parameters().embedding.value.clone();
  EXPECT_FALSE(trainer.step(random_data(config, 1), {config.train.lr, config.train.lr}, false).applied);
  EXPECT_EQ(trainer.optimizer().applied(), 1);
  for (std::int64_t i = 0; i < before.size(); ++i) ASSERT_EQ(before.at(i), trainer.parameters().embedding.value.at(i));
}

TEST(Numerics, ARunThatBlowsUpStopsAndItsCheckpointStillLoads) {
  testing::TemporaryDirectory directory;
  const auto request =
      testing::small_request(directory, "a", {"steps=2000", "lr=100", "mult_rest=1000", "opt=adamw", "grad_clip=0", "ckpt_every=1"});
  try {
    run(request, false);
    ADD_FAILURE() << "a learning rate of 100,000 went through";
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("not finite"), std::string::npos) << error.what();
  }
  const RunDirectory run_directory{directory.path / "a"};
  const auto text = base::read_file(run_directory.config());
  auto config = read_config(std::string(text.begin(), text.end()), "config.toml");
  Trainer trainer(config, network::declare_parameters(config.model));
  EXPECT_NO_THROW(load_checkpoint(run_directory.checkpoint(), config, trainer));
  base::set_threads(0);
}

}  // namespace
}  // namespace dormouse::train
