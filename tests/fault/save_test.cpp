// A save that fails at any of its calls, once: training goes on or ends with one line, and a whole checkpoint is always there.
#include <sys/mount.h>
#include <sys/resource.h>

#include "support.h"

namespace dormouse::testing {
namespace {

class SaveTest : public ProgramTest {
 protected:
  // The length, the header, every tensor.
  int writes_of_a_save() {
    EXPECT_EQ(run(train("count", {"--steps", "1"})), 0);
    return static_cast<int>(format::SafetensorsFile(run_file("count", "checkpoint.safetensors")).entries().size()) + 2;
  }
  // Runs once for n = 1, 2, ... with the n-th call of a save failing, until a run meets no fault. Each run saves at steps 0, 2, 4, 6.
  void fail_every(const std::string& kind, const std::string& action, const std::string& file, int least) {
    int n = 1;
    for (; n < 500; ++n) {
      const std::string name = "r" + std::to_string(n), faults = kind + ":" + std::to_string(n) + ":" + action + ":" + file;
      const int code = run(train(name, {"--steps", "6", "--ckpt-every", "2", "--eval-every", "3"}), faults);
      const std::string log = err_;
      if (!contains(log, "fault: ")) break;
      SCOPED_TRACE(faults + "\n" + log);
      expect_no_temporary(name);
      expect_whole(name);
      if (code == 0) {
        EXPECT_TRUE(contains(log, "training goes on"));
      } else {
        EXPECT_EQ(code, 1);
        EXPECT_NE(error_line(), "");
      }
      ASSERT_EQ(run(train(name, {"--steps", "6", "--ckpt-every", "2", "--eval-every", "3"})), 0) << err_;
      EXPECT_EQ(step_of(run_file(name, "checkpoint.safetensors")), 6);
      fs::remove_all(folder() / name);
    }
    EXPECT_GE(n - 1, least) << "fewer failures than the saves have calls";
    EXPECT_LT(n, 500);
  }
};

// A save links the old file, writes 8 bytes, the header and the tensors, flushes, renames twice, flushes the directory.
TEST_F(SaveTest, EveryFlushOfASaveFailingOnceLosesNothing) { fail_every("fsync", "EIO", "checkpoint.safetensors", 6); }
TEST_F(SaveTest, EveryFlushOfTheDirectoryFailingOnceLosesNothing) { fail_every("fsync", "EIO", "", 12); }
TEST_F(SaveTest, EveryRenameFailingOnceLosesNothing) { fail_every("rename", "EIO", "safetensors", 12); }
TEST_F(SaveTest, EveryLinkFailingOnceLosesNothing) { fail_every("link", "EIO", "previous", 3); }

// Five saves a run, at steps 1 to 5, each failing at a write of its own.
TEST_F(SaveTest, EveryWriteOfASaveFailingOnceLosesNothing) {
  const int writes = writes_of_a_save();
  for (int first = 1; first <= writes; first += 5) {
    std::string faults;
    int calls = writes;  // of the saves before
    for (int at = first; at < first + 5; ++at) {
      calls += std::min(at, writes);
      faults += "write:" + std::to_string(calls) + (at % 2 == 0 ? ":ENOSPC" : ":EIO") + ":checkpoint,";
    }
    faults.pop_back();
    SCOPED_TRACE(faults);
    ASSERT_EQ(run(train("a", {"--steps", "6", "--ckpt-every", "1", "--eval-every", "100"}), faults), 0) << err_;
    for (int step = 1; step <= 5; ++step)
      EXPECT_TRUE(contains(err_, "WARNING: checkpoint.safetensors of step " + std::to_string(step) + " was not saved")) << err_;
    EXPECT_TRUE(contains(err_, "Input/output error") && contains(err_, "No space left on device (") && contains(err_, " free")) << err_;
    expect_no_temporary("a");
    expect_whole("a");
    EXPECT_EQ(step_of(run_file("a", "previous.safetensors")), 0) << "all the while the first save stood";
    fs::remove_all(folder() / "a");
  }
}

TEST_F(SaveTest, AShortWriteIsContinued) {
  ASSERT_EQ(run(train("a", {"--steps", "4"})), 0);
  ASSERT_EQ(run(train("b", {"--steps", "4"}), "write:1+:short:safetensors"), 0) << err_;
  expect_same(run_file("a", "checkpoint.safetensors"), run_file("b", "checkpoint.safetensors"));
}

TEST_F(SaveTest, ADiskThatStaysFullStopsTheRunAtItsEndWithOneLineAndTheOldFilesIntact) {
  const std::string faults = "write:" + std::to_string(2 * writes_of_a_save() + 1) + "+:ENOSPC:checkpoint";
  ASSERT_EQ(run(train("a", {"--steps", "6", "--ckpt-every", "2"}), faults), 1);
  const std::string line = error_line();
  EXPECT_TRUE(contains(line, "could not be saved at step 6") && contains(line, "checkpoint of step 2 stays") && contains(line, "free"))
      << line;
  expect_whole("a");
  expect_no_temporary("a");
  ASSERT_EQ(run(resume("a")), 0) << err_;
  ASSERT_EQ(run(train("b", {"--steps", "6", "--ckpt-every", "2"})), 0);
  expect_same(run_file("b", "checkpoint.safetensors"), run_file("a", "checkpoint.safetensors"));
}

TEST_F(SaveTest, ABestThatCouldNotBeWrittenIsNotCalledTheBest) {
  ASSERT_EQ(run(train("a", {"--steps", "30", "--ckpt-every", "10", "--eval-every", "10"}), "rename:2+:EIO:best"), 0) << err_;
  EXPECT_TRUE(contains(err_, "WARNING: best.safetensors of step 20 was not saved") &&
              contains(err_, "WARNING: best.safetensors of step 30"))
      << err_;
  EXPECT_EQ(step_of(run_file("a", "best.safetensors")), 10);
  EXPECT_TRUE(metadata(run_file("a", "checkpoint.safetensors"), "best_bpb").ends_with(" at 10"));
}

TEST_F(SaveTest, ASaveDueAtAPoisonedStepComesAfterTheNext) {
  ASSERT_EQ(run(train("a", {"--steps", "8", "--ckpt-every", "4"}), "step:4:loss,rename:2:done:checkpoint"), 1000 + SIGKILL) << err_;
  EXPECT_EQ(step_of(run_file("a", "checkpoint.safetensors")), 5);
}

TEST_F(SaveTest, MetricsAndStatusThatCannotBeWrittenAreCountedAndTrainingGoesOn) {
  ASSERT_EQ(run(train("a", {"--steps", "6", "--log-every", "1"}), "write:3:ENOSPC:metrics,write:6:torn:none,rename:1+:EIO:status"), 0)
      << err_;
  EXPECT_TRUE(contains(err_, "metrics.jsonl") && contains(err_, " lost 2")) << err_;
  std::istringstream lines(text_of(run_file("a", "metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) EXPECT_TRUE(line.starts_with('{') && line.ends_with('}')) << line;
}

TEST_F(SaveTest, TrainingGoesOnWhileASaveStallsAndNoSecondOneBegins) {
  ASSERT_EQ(run(train("a", {"--steps", "40", "--ckpt-every", "4", "--log-every", "1", "--eval-every", "100"}), "fsync:2:stall:checkpoint"),
            0);
  // Step 4 is saved in the background while steps 5 to 8 are trained; the save of step 8 waits for it.
  const auto log = text_of(run_file("a", "metrics.jsonl"));
  const auto elapsed = [&](int step) {
    const auto at = log.find("\"event\":\"step\",\"step\":" + std::to_string(step) + ",");
    return std::strtod(log.c_str() + log.find("\"elapsed\":", at) + 10, nullptr);
  };
  EXPECT_LT(elapsed(8) - elapsed(4), 0.9);
  EXPECT_GT(elapsed(9) - elapsed(8), 0.5);
}

TEST_F(SaveTest, WithoutMemoryForACopyTrainingWaitsAndSaysSo) {
  for (const std::string faults : {"memory:2+:none", "alloc:1+:ENOMEM:100000000,memory:2+:none"}) {
    ASSERT_EQ(run(train("a", {"--steps", "4", "--ckpt-every", "2", "--log-every", "1"}), faults), 0) << err_;
    EXPECT_TRUE(contains(err_, "training waits while its state is saved")) << err_;
    EXPECT_TRUE(contains(text_of(run_file("a", "metrics.jsonl")), "\"saves_stalled\":2")) << "counted";
    fs::remove_all(folder() / "a");
  }
}

TEST_F(SaveTest, AnAllocationThatFailsEndsTheRunWithOneLineAndTheCheckpointLoads) {
  ASSERT_EQ(run(train("a", {"--steps", "3"})), 0);
  int failed = 0;
  for (int n = 1; n < 4000; n += 1 + n / 3) {
    const int code = run(train("r", {"--steps", "4", "--ckpt-every", "2"}), "alloc:" + std::to_string(n) + ":ENOMEM:500");
    EXPECT_TRUE(code == 0 || contains(error_line(), "memory")) << err_;
    SCOPED_TRACE(std::to_string(n) + "\n" + err_);
    if (fs::exists(folder() / "r")) {
      expect_whole("r");
      ASSERT_EQ(run(train("r", {"--steps", "4", "--ckpt-every", "2"})), 0) << err_;
      fs::remove_all(folder() / "r");
    }
    if (code == 0) continue;
    EXPECT_EQ(code, 1);
    ++failed;
  }
  EXPECT_GT(failed, 5);
}

TEST_F(SaveTest, WithoutHardLinksTwoRenamesKeepTheSaveBefore) {
  ASSERT_EQ(run(train("a", {"--steps", "4", "--ckpt-every", "2"}), "link:1+:EPERM:previous"), 0) << err_;
  EXPECT_EQ(step_of(run_file("a", "checkpoint.safetensors")), 4);
  EXPECT_EQ(step_of(run_file("a", "previous.safetensors")), 2);
  // Between the two renames only previous.safetensors is there.
  const int code = run(train("b", {"--steps", "4", "--ckpt-every", "2"}), "link:1+:EPERM:previous,rename:1:done:previous");
  ASSERT_EQ(code, 1000 + SIGKILL);
  ASSERT_FALSE(fs::exists(run_file("b", "checkpoint.safetensors")));
  ASSERT_EQ(run(resume("b")), 0) << err_;
  EXPECT_TRUE(contains(err_, "WARNING: checkpoint.safetensors is missing; going on from the save before it")) << err_;
  expect_same(run_file("a", "checkpoint.safetensors"), run_file("b", "checkpoint.safetensors"));
}

TEST_F(SaveTest, AFileSizeLimitIsAFullDisk) {
  const auto limit = [](rlim_t bytes) {
    return [bytes] {
      const rlimit size = {bytes, bytes};
      ::setrlimit(RLIMIT_FSIZE, &size);
    };
  };
  ASSERT_EQ(run(train("a", {"--steps", "4"})), 0);
  const auto whole = fs::file_size(run_file("a", "checkpoint.safetensors"));
  EXPECT_EQ(run(train("b", {"--steps", "4"}), "", limit(whole / 2)), 1);
  EXPECT_TRUE(contains(error_line(), "the run could not be saved at step 0")) << err_;
  expect_no_temporary("b");
  ASSERT_EQ(run(train("c", {"--steps", "8", "--ckpt-every", "2"}), "step:5:loss,write:200:kill:checkpoint"), 1000 + SIGKILL);
  const std::int64_t before = step_of(run_file("c", "checkpoint.safetensors"));
  EXPECT_EQ(run(resume("c"), "", limit(whole / 2)), 1);
  EXPECT_TRUE(contains(error_line(), "could not be saved at step 8")) << err_;
  EXPECT_EQ(step_of(run_file("c", "checkpoint.safetensors")), before);
  expect_no_temporary("c");
}

TEST_F(SaveTest, ASmallDiskFillsUpAndTheCheckpointOnItLoads) {
  const fs::path disk = folder() / "disk";
  fs::create_directory(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=200k") != 0) GTEST_SKIP() << "no right to mount a small tmpfs";
  const int code = run(train("disk/a", {"--steps", "4", "--ckpt-every", "2"}));
  EXPECT_EQ(code, 1) << err_;
  EXPECT_TRUE(contains(error_line(), "No space left on device (") && contains(error_line(), "free")) << err_;
  expect_whole("disk/a");
  expect_no_temporary("disk/a");
  EXPECT_EQ(::umount2(disk.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace dormouse::testing
