// INT, TERM and HUP while a run loads, trains, evaluates and saves; and a second one.
#include "support.h"

namespace dormouse::testing {
namespace {

class ProgramSignals : public ProgramTest {
 protected:
  static void defaults() {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  }
  // Sends `signal` once `text` was said; the exit code.
  int stop_at(const Words& words, const std::string& text, int signal, const std::string& faults = "", int second = 0) {
    Program program(folder(), words, faults, defaults);
    EXPECT_TRUE(program.wait_for(text)) << program.err();
    program.send(signal);
    if (second != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      program.send(second);
    }
    const auto start = std::chrono::steady_clock::now();
    const int code = program.wait();
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    err_ = program.err();
    return code;
  }
  double seconds_ = 0;
};

TEST_F(ProgramSignals, InAStepEachFinishesItSavesAndTheRunResumesToTheSameEnd) {
  const Words flags = {"--steps", "500", "--log-every", "1", "--eval-every", "50", "--ckpt-every", "1000"};
  ASSERT_EQ(run(train("whole", flags)), 0) << err_;
  ASSERT_EQ(stop_at(train("a", flags), "\nstep 20 ", SIGTERM), 143) << err_;
  EXPECT_TRUE(contains(err_, "stopped by signal 15 after step ") && contains(err_, "the same command resumes")) << err_;
  ASSERT_EQ(stop_at(resume("a"), "\nstep 80 ", SIGINT), 130) << err_;
  ASSERT_EQ(stop_at(resume("a"), "\nstep 150 ", SIGHUP), 129) << err_;
  expect_whole("a");
  expect_no_temporary("a");
  EXPECT_GE(step_of(run_file("a", "checkpoint.safetensors")), 150);
  ASSERT_EQ(run(resume("a")), 0) << err_;
  expect_same(run_file("whole", "checkpoint.safetensors"), run_file("a", "checkpoint.safetensors"));
}

TEST_F(ProgramSignals, InAnEvaluationItIsCutShortAndComesFirstOnTheResume) {
  train::testing::write(folder() / "held.txt", train::testing::some_text(100000, 9));
  const Words flags = {"--steps", "3", "--eval-every", "2", "--eval", "held.txt", "--log-every", "1"};
  ASSERT_EQ(run(train("whole", flags)), 0) << err_;
  ASSERT_EQ(stop_at(train("a", flags), "\nstep 2 ", SIGTERM), 143) << err_;
  EXPECT_FALSE(contains(err_, "EVAL")) << "the evaluation of 100,000 bytes was not over that early";
  EXPECT_EQ(metadata(run_file("a", "checkpoint.safetensors"), "eval_pending"), "1");
  ASSERT_EQ(stop_at(resume("a"), "\nstep 3 ", SIGINT), 130) << "the last evaluation: " << err_;
  EXPECT_TRUE(contains(err_, "EVAL step 2")) << err_;
  ASSERT_EQ(run(resume("a")), 0) << err_;
  EXPECT_TRUE(contains(err_, "EVAL step 3") && contains(err_, "done: 3 steps")) << err_;
  expect_same(run_file("whole", "checkpoint.safetensors"), run_file("a", "checkpoint.safetensors"));
  expect_same(run_file("whole", "best.safetensors"), run_file("a", "best.safetensors"));
}

TEST_F(ProgramSignals, InASaveItEndsWithACompleteCheckpoint) {
  const Words flags = {"--steps", "100000", "--log-every", "1", "--ckpt-every", "5"};
  ASSERT_EQ(stop_at(train("a", flags), "fault: fsync", SIGHUP, "fsync:2:stall:checkpoint"), 129) << err_;
  expect_whole("a");
  expect_no_temporary("a");
  EXPECT_GE(step_of(run_file("a", "checkpoint.safetensors")), 6);
}

TEST_F(ProgramSignals, ASecondOneEndsTheProcessAtOnceAndTheCheckpointBeforeIsWhole) {
  const Words flags = {"--steps", "100000", "--log-every", "1", "--ckpt-every", "5"};
  ASSERT_EQ(stop_at(train("a", flags), "fault: fsync", SIGTERM, "fsync:2+:stall:checkpoint", SIGINT), 130) << err_;
  EXPECT_LT(seconds_, 0.9) << "it did not wait for the flush of a second";
  expect_whole("a");
  EXPECT_EQ(step_of(run_file("a", "checkpoint.safetensors")), 0);
  ASSERT_EQ(stop_at(resume("a"), "resumed at step 0", SIGTERM), 143) << err_;
  expect_no_temporary("a");
}

TEST_F(ProgramSignals, WhileLoadingItEndsAtOnceAndTheCheckpointIsAsItWas) {
  ASSERT_EQ(run(train("a", {"--steps", "20"}), "step:3:loss,rename:3:kill:checkpoint"), 1000 + SIGKILL) << err_;
  const std::string before = text_of(run_file("a", "checkpoint.safetensors"));
  // The flush of config.toml, which --log-every changes, stands for a long load.
  ASSERT_EQ(stop_at(resume("a", {"--log-every", "3"}), "fault: fsync", SIGTERM, "fsync:1:stall:config"), 143) << err_;
  EXPECT_LT(seconds_, 0.9);
  EXPECT_EQ(text_of(run_file("a", "checkpoint.safetensors")), before);
  ASSERT_EQ(run(resume("a")), 0) << err_;
  expect_no_temporary("a");

  // A new run: in the anchors of a text that takes a while.
  train::testing::write(folder() / "text.txt", train::testing::some_text(3000000));
  ASSERT_EQ(stop_at(train("b", {"--steps", "20"}), "  length ", SIGINT), 130) << err_;
  EXPECT_FALSE(fs::exists(run_file("b", "checkpoint.safetensors"))) << "the anchors were over that early";
  EXPECT_LT(seconds_, 0.9);
}

}  // namespace
}  // namespace dormouse::testing
