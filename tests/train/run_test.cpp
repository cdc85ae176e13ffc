#include "train/run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/threads.h"
#include "format/safetensors.h"
#include "network/dormouse/model_file.h"
#include "support.h"
#include "train/checkpoint.h"
#include "train/directory.h"
#include "train/pace.h"

namespace dormouse::train {
namespace {

using testing::expect_same_tensors;
using testing::small_request;
using testing::TemporaryDirectory;

std::string read_text(const std::filesystem::path& path) {
  const auto bytes = base::read_file(path);
  return {bytes.begin(), bytes.end()};
}

// The values of `key` in the objects of `event`, in order.
std::vector<double> metric(const std::filesystem::path& run, const std::string& event, const std::string& key) {
  std::vector<double> values;
  std::istringstream lines(read_text(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find("\"" + key + "\":");
    if (line.find("\"event\":\"" + event + "\"") != std::string::npos && at != std::string::npos) {
      values.push_back(std::strtod(line.c_str() + at + key.size() + 3, nullptr));
    }
  }
  return values;
}

class RunTest : public ::testing::Test {
 protected:
  void TearDown() override { base::set_threads(0); }
  TemporaryDirectory directory_;
  std::filesystem::path checkpoint(const std::string& run) const { return directory_.path / run / "checkpoint.safetensors"; }
  int start(const std::string& name, const std::vector<std::string>& settings) {
    return run(small_request(directory_, name, settings), false);
  }
};

TEST_F(RunTest, TheSameRunTwiceIsEqualBitForBit) {
  ASSERT_EQ(start("a", {"steps=12"}), 0);
  ASSERT_EQ(start("b", {"steps=12"}), 0);
  expect_same_tensors(checkpoint("a"), checkpoint("b"));
  ASSERT_EQ(start("c", {"steps=12", "seed=2"}), 0);
  const format::SafetensorsFile a(checkpoint("a")), c(checkpoint("c"));
  const auto x = a.read(*a.find("model.head.v")), y = c.read(*c.find("model.head.v"));
  EXPECT_NE(std::memcmp(x.bytes(), y.bytes(), static_cast<std::size_t>(x.size()) * 4), 0) << "another seed must train another model";
}

TEST_F(RunTest, ResumingFromACheckpointEqualsTheUninterruptedRun) {
  for (const std::string accum : {"accum=1", "accum=2"}) {
    const std::string whole = "whole" + accum, half = "half" + accum;
    ASSERT_EQ(start(whole, {"steps=60", accum}), 0);
    ASSERT_EQ(start(half, {"steps=60", accum}), 0);
    // The state before the decay stands for the moment of a kill: in the second epoch of the data at accum=2.
    std::filesystem::copy_file(directory_.path / half / "stable.safetensors", checkpoint(half),
                               std::filesystem::copy_options::overwrite_existing);
    Request bare;
    bare.run_directory = directory_.path / half;
    ASSERT_EQ(run(bare, false), 0);
    EXPECT_EQ(metric(directory_.path / half, "resume", "step"), std::vector<double>{39});
    expect_same_tensors(checkpoint(whole), checkpoint(half));
  }
}

TEST_F(RunTest, EvaluatingEveryStepChangesNothing) {
  ASSERT_EQ(start("often", {"steps=10", "eval_every=1", "eval_depths=true", "log_every=1"}), 0);
  ASSERT_EQ(start("never", {"steps=10", "eval_every=1000", "log_every=1"}), 0);
  EXPECT_EQ(metric(directory_.path / "often", "eval", "bpb").size(), 10U);
  EXPECT_EQ(metric(directory_.path / "never", "eval", "bpb").size(), 1U);
  EXPECT_EQ(metric(directory_.path / "often", "step", "ce"), metric(directory_.path / "never", "step", "ce"));
  EXPECT_EQ(metric(directory_.path / "often", "end", "bpb"), metric(directory_.path / "never", "end", "bpb"));
  expect_same_tensors(checkpoint("often"), checkpoint("never"));
}

// Seven and twelve: more than there are tiles of rows in the experts.
TEST_F(RunTest, OneTwoThreeSevenAndTwelveThreadsAgreeAfterTwentySteps) {
  std::vector<std::vector<double>> losses, norms;
  for (const std::string threads : {"1", "2", "3", "7", "12"}) {
    ASSERT_EQ(start("t" + threads, {"steps=20", "log_every=1", "expert_init=unit", "threads=" + threads}), 0);
    losses.push_back(metric(directory_.path / ("t" + threads), "step", "ce"));
    norms.push_back(metric(directory_.path / ("t" + threads), "step", "gnorm_all"));
    ASSERT_EQ(losses.back().size(), 20U);
    ASSERT_EQ(norms.back().size(), 20U);
    EXPECT_NEAR(losses[0].back(), losses.back().back(), 1e-4) << threads;
    EXPECT_NEAR(norms[0].front(), norms.back().front(), 1e-4 * norms[0].front()) << threads;
  }
}

TEST_F(RunTest, AccumulationEqualsOneLargerBatch) {
  // The same windows in the same steps: batch 4 twice, batch 8 once.
  ASSERT_EQ(start("accum", {"steps=6", "accum=2", "log_every=1", "lr=0.001"}), 0);
  ASSERT_EQ(start("large", {"steps=6", "batch=8", "log_every=1", "lr=0.001"}), 0);
  const auto a = metric(directory_.path / "accum", "step", "ce"), b = metric(directory_.path / "large", "step", "ce");
  ASSERT_EQ(a.size(), 6U);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4) << i;
}

TEST_F(RunTest, TrainingLearnsTheText) {
  ASSERT_EQ(start("learn", {"steps=200", "lr=0.01"}), 0);
  const auto bpb = metric(directory_.path / "learn", "end", "bpb");
  ASSERT_EQ(bpb.size(), 1U);
  EXPECT_LT(bpb[0], 2.5) << "a text of ten words is below 1.5 bits per byte; untrained is 8";
}

TEST_F(RunTest, AFinishedRunIsLeftAlone) {
  ASSERT_EQ(start("a", {"steps=3"}), 0);
  const auto before = read_text(checkpoint("a"));
  ASSERT_EQ(start("a", {"steps=3"}), 0);
  EXPECT_EQ(read_text(checkpoint("a")), before);
}

TEST_F(RunTest, AResumeRemovesWhatTheKilledLeftAndNotWhatAnotherProcessWrites) {
  const std::filesystem::path a = directory_.path / "a", dead = a / "model.dmexp.tmp.999999999",
                              alive = a / ("model.dmexp.tmp." + std::to_string(::getppid()));
  ASSERT_EQ(start("a", {"steps=3"}), 0);
  for (const auto& path : {dead, alive}) std::ofstream(path) << "half";
  ASSERT_EQ(start("a", {"steps=3"}), 0);
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(alive));
}

TEST_F(RunTest, ARunAfterAKillBeforeItsFirstSaveStartsAnew) {
  ASSERT_EQ(start("a", {"steps=3"}), 0);
  std::filesystem::remove(checkpoint("a"));
  std::filesystem::remove(directory_.path / "a" / "previous.safetensors");
  EXPECT_THROW(start("a", {"steps=3"}), base::Error) << "weights without a checkpoint are not overwritten";
  for (const char* name : {"best.safetensors", "stable.safetensors"}) std::filesystem::remove(directory_.path / "a" / name);
  EXPECT_THROW(start("a", {"steps=3"}), base::Error) << "a run that logged steps has lost its checkpoints: it does not start over";
  // What a kill before the first save leaves: the config, the log and metrics without a step.
  std::ofstream(directory_.path / "a" / "metrics.jsonl") << "{\"event\":\"start\"}\n";
  ASSERT_EQ(start("a", {"steps=3"}), 0);
  ASSERT_EQ(start("b", {"steps=3"}), 0);
  expect_same_tensors(checkpoint("a"), checkpoint("b"));
}

TEST_F(RunTest, AnExtensionBeyondTheLongestRunIsRefusedBeforeAnythingChanges) {
  ASSERT_EQ(start("a", {"steps=3"}), 0);
  for (const std::int64_t steps : {kMostSteps, std::numeric_limits<std::int64_t>::max()}) {
    Request request;
    request.run_directory = directory_.path / "a";
    request.extend = steps;
    EXPECT_THROW(run(request, false), base::UsageError) << steps;
  }
  ASSERT_EQ(start("b", {"steps=3"}), 0);
  expect_same_tensors(checkpoint("a"), checkpoint("b"));
}

TEST_F(RunTest, ProgressKeysMayChangeOnAResumeAndOthersMayNot) {
  ASSERT_EQ(start("a", {"steps=3"}), 0);
  Request request;
  request.run_directory = directory_.path / "a";
  request.typed = {{"log_every", "7", "--log-every 7"}};
  EXPECT_EQ(run(request, false), 0);
  EXPECT_EQ(read_config(read_text(directory_.path / "a" / "config.toml"), "config").train.log_every, 7);
  for (const auto& typed :
       std::vector<Typed>{{"steps", "4", "--steps 4"}, {"lr", "0.5", "--lr 0.5"}, {"d_model", "32", "--set d_model=32"}}) {
    request.typed = {typed};
    EXPECT_THROW(run(request, false), base::UsageError) << typed.key;
  }
}

TEST_F(RunTest, ADamagedCheckpointIsRefusedAndNamed) {
  ASSERT_EQ(start("a", {"steps=3"}), 0);
  Request request;
  request.run_directory = directory_.path / "a";
  std::filesystem::remove(directory_.path / "a" / "previous.safetensors");
  const auto good = read_text(checkpoint("a"));
  for (const std::size_t at : {good.size() - 5, good.size() / 2, good.size() / 8}) {
    auto bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    testing::write(checkpoint("a"), bad);
    try {
      run(request, false);
      ADD_FAILURE() << "a flipped bit at " << at << " of " << good.size() << " was accepted";
    } catch (const base::Error& error) {
      EXPECT_NE(std::string(error.what()).find("checkpoint.safetensors"), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST_F(RunTest, ATimeLimitLatchesItsDecayAndEnds) {
  ASSERT_EQ(start("a", {"time_limit=2", "log_every=1000000"}), 0);
  const auto decay = metric(directory_.path / "a", "decay", "step");
  const auto steps = metric(directory_.path / "a", "decay", "steps");
  const auto end = metric(directory_.path / "a", "end", "step");
  ASSERT_EQ(decay.size(), 1U);
  EXPECT_EQ(end.at(0), decay[0] + steps.at(0));
  EXPECT_GT(steps[0], 0);
}

TEST_F(RunTest, AllGatesAndTheStreamAreLogged) {
  ASSERT_EQ(start("a", {"steps=2", "log_every=1"}), 0);
  for (const std::string key :
       {"u_rms_1", "u_rms_2", "saturated_attention_1", "saturated_memory_2", "saturated_ffn_2", "gnorm", "bytes_per_s"}) {
    EXPECT_EQ(metric(directory_.path / "a", "step", key).size(), 2U) << key;
  }
  EXPECT_TRUE(std::filesystem::exists(directory_.path / "a" / "log.txt"));
  EXPECT_NE(read_text(directory_.path / "a" / "status.txt").find("step "), std::string::npos);
}

TEST(SkipCounter, StopsAtTheNinthNoOpAmongAHundredSteps) {
  SkipCounter counter;
  for (std::int64_t step = 1; step <= 8; ++step) EXPECT_FALSE(counter.add(step, 1));
  EXPECT_TRUE(counter.add(9, 1));
  SkipCounter spread;
  for (std::int64_t step = 1; step < 2000; step += 20) EXPECT_FALSE(spread.add(step, 1)) << step;
  SkipCounter window;
  bool stopped = false;
  for (std::int64_t step = 1; step < 400; step += 20) stopped = stopped || window.add(step, 1000);
  EXPECT_TRUE(stopped) << "a longer log window counts further back";
}

TEST(Checkpoint, PositionsReadBackAndNonsenseIsRefused) {
  const data::ByteStream::Position position{3, 2, 118};
  EXPECT_EQ(parse_position(position.text(), "x"), position);
  for (const std::string text : {"", "epoch", "epoch 3 generation 2", "epoch -3 generation 0 window 0", "epoch 3 generation 2 window 1 1",
                                 "epoch 3 generation 2 window 1x"}) {
    EXPECT_THROW(parse_position(text, "x"), base::Error) << text;
  }
}

}  // namespace
}  // namespace dormouse::train
