#include "train/memory_reset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "base/file.h"
#include "support.h"
#include "train/pace.h"
#include "train/run.h"
#include "train/step.h"

namespace dormouse::train {
namespace {

using Position = data::ByteStream::Position;

// Epochs of 200 steps of 2 x 2 windows.
class Rule : public ::testing::Test {
 protected:
  Rule() : config_(testing::small_config(2, 10)) { config_.train.accum = 2; }
  bool anew(const Position& at, double steps_left) const { return memory_begins_anew(config_, bytes_, at, steps_left); }
  RunConfig config_;
  std::uint64_t bytes_ = 200 * 4 * 10;
};

TEST_F(Rule, OnlyTheFirstStepOfALaterEpochBegins) {
  EXPECT_FALSE(anew({0, 0, 0}, 1000));
  EXPECT_TRUE(anew({1, 0, 0}, 1000));
  EXPECT_TRUE(anew({5, 0, 3}, 1000));  // three windows of the epoch filled up the step before
  EXPECT_FALSE(anew({1, 0, 4}, 1000));
  EXPECT_FALSE(anew({1, 1, 0}, 1000));  // a later part of a large text's epoch
}

TEST_F(Rule, ThereMustBeTimeToFillTheMemoryAgain) {
  EXPECT_TRUE(anew({1, 0, 0}, 180));
  EXPECT_FALSE(anew({1, 0, 0}, 179));
}

TEST_F(Rule, ShortEpochsOtherSettingsAndOtherNetworksKeepTheirRows) {
  config_.train.memory_reset = false;
  EXPECT_FALSE(anew({1, 0, 0}, 1000));
  config_.train.memory_reset = true;
  config_.model.use_engram = false;
  EXPECT_FALSE(anew({1, 0, 0}, 1000));
  config_.model.use_engram = true;
  EXPECT_TRUE(anew({1, 0, 0}, 1000));
  bytes_ = 99 * 4 * 10;
  EXPECT_FALSE(anew({1, 0, 0}, 1000));
}

TEST(MemoryReset, OnlyTheMemorysRateKeepsItsHeight) {
  TrainConfig train;
  const auto schedule = optim::Schedule::for_steps(1, 1000, 0.5);
  for (const std::int64_t step : {0, 10, 400, 700, 999}) {
    EXPECT_EQ(learning_rates(train, schedule, step).all, schedule.at(step));
    EXPECT_EQ(learning_rates(train, schedule, step).table, step == 0 ? 0.05 : step == 10 ? 0.55 : 1) << step;
  }
  train.memory_reset = false;
  EXPECT_EQ(learning_rates(train, schedule, 700).table, schedule.at(700));
}

TEST(MemoryReset, TheStepsLeftOfARunByTimeAreEstimatedUntilItsDecayBegins) {
  TrainConfig train;
  train.time_limit = 120;
  train.decay_fraction = 0.5;
  Progress progress;
  progress.schedule = make_schedule(train);
  Pace whole(train, progress);
  for (int i = 0; i < 10; ++i) whole.stepped(1);  // the other second of each: evaluations and saves
  progress.step = 10;
  progress.elapsed = 20;
  EXPECT_NEAR(whole.steps_left(progress), 50, 1e-9);
  EXPECT_NEAR(Pace(train, progress).steps_left(progress), 50, 1e-9);  // resumed
  EXPECT_FALSE(whole.latch_decay(progress));
  progress.elapsed = 60;
  ASSERT_TRUE(whole.latch_decay(progress));
  EXPECT_EQ(whole.steps_left(progress), 10);
  ++progress.step;
  EXPECT_EQ(whole.steps_left(progress), 9);
}

bool same(const tensor::Tensor& a, const tensor::Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.size()) * tensor::size_of(a.dtype())) == 0;
}

TEST(MemoryReset, RowsAndTheirStateAreThoseOfTheStartAndAllElseStays) {
  const RunConfig config = testing::small_config(2, 24);
  const std::string text = testing::some_text(400);
  data::Batch batch{.rows = 2, .seq_len = 24, .bytes = {}};
  batch.bytes.assign(text.begin(), text.begin() + 2 * 25);
  const StepData data = make_step_data({batch}, config.model);
  const auto seed = static_cast<std::uint64_t>(config.train.seed);
  auto fresh = network::make_parameters(config.model, seed);
  Trainer trainer(config, network::make_parameters(config.model, seed)), kept(config, network::make_parameters(config.model, seed));
  for (int i = 0; i < 3; ++i) {
    trainer.step(data, {1e-2, 1e-2}, false);
    kept.step(data, {1e-2, 1e-2}, false);
  }
  const auto& table = trainer.parameters().engram.table;
  ASSERT_FALSE(same(table.value, fresh.engram.table.value));
  trainer.forget_memory();
  EXPECT_TRUE(same(table.value, fresh.engram.table.value));
  std::vector<tensor::Tensor> states;
  kept.optimizer().for_each_state([&](const std::string&, tensor::Tensor& value) { states.push_back(value); });
  std::size_t at = 0;
  trainer.optimizer().for_each_state([&](const std::string& name, tensor::Tensor& value) {
    const tensor::Tensor& before = states.at(at++);
    if (name.find(table.name) == std::string::npos) {
      EXPECT_TRUE(same(value, before)) << name;
      return;
    }
    ASSERT_FALSE(same(value, before)) << name;
    const auto* bytes = static_cast<const char*>(static_cast<const void*>(value.bytes()));
    EXPECT_TRUE(std::all_of(bytes, bytes + value.size() * 4, [](char byte) { return byte == 0; })) << name;
  });
  EXPECT_TRUE(same(trainer.parameters().engram.key.value, kept.parameters().engram.key.value));
}

class ResetRun : public ::testing::Test {
 protected:
  testing::TemporaryDirectory directory_;
  int start(const std::string& name, const std::vector<std::string>& settings) {
    return run(testing::small_request(directory_, name, settings), false);
  }
  std::string resets(const std::string& name) const {
    const auto bytes = base::read_file(directory_.path / name / "metrics.jsonl");
    std::istringstream lines(std::string(bytes.begin(), bytes.end()));
    std::string found;
    for (std::string line; std::getline(lines, line);)
      if (line.find("\"event\":\"memory_reset\"") != std::string::npos) found += line + "\n";
    return found;
  }
};

// 19,000 bytes to learn from: epochs of about 148 steps of 128 bytes.
TEST_F(ResetRun, EveryEpochThatTheRunFinishesBeginsAnewAndAResumeIsTheSameRun) {
  ASSERT_EQ(start("whole", {"steps=300", "decay_fraction=0.6", "eval_tail=1000", "max_iter=1"}), 0);
  const std::string events = resets("whole");
  EXPECT_EQ(std::count(events.begin(), events.end(), '\n'), 1) << events;  // there is no time for a second
  ASSERT_EQ(start("half", {"steps=300", "decay_fraction=0.6", "eval_tail=1000", "max_iter=1"}), 0);
  // The state before the decay, in the first epoch, stands for the moment of a kill: the reset is still to come.
  const auto half = directory_.path / "half";
  std::filesystem::copy_file(half / "stable.safetensors", half / "checkpoint.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  Request bare;
  bare.run_directory = half;
  ASSERT_EQ(run(bare, false), 0);
  const std::string again = resets("half");
  EXPECT_EQ(std::count(again.begin(), again.end(), '\n'), 2) << again;
  testing::expect_same_tensors(directory_.path / "whole" / "checkpoint.safetensors", half / "checkpoint.safetensors");
}

}  // namespace
}  // namespace dormouse::train
