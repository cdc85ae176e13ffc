// Steps whose loss or gradient is not finite change nothing, are counted, and stop the run when they are many.
#include <cstring>

#include "support.h"

namespace dormouse::testing {
namespace {

class FirewallTest : public ProgramTest {
 protected:
  // "step:5:loss,step:15:loss,..."
  static std::string poisoned(int count, int first, int apart, const std::string& what = "loss") {
    std::string faults;
    for (int i = 0; i < count; ++i) faults += (i > 0 ? "," : "") + std::string("step:") + std::to_string(first + i * apart) + ":" + what;
    return faults;
  }
};

TEST_F(FirewallTest, APoisonedStepLeavesWeightsMomentsAndTablesBitIdenticalAndIsCounted) {
  for (const std::string what : {"loss", "gradient"}) {
    for (const std::string accum : {"1", "3"}) {
      SCOPED_TRACE(what + " " + accum);
      ASSERT_EQ(run(train("a", {"--steps", "4", "--accum", accum, "--ckpt-every", "1", "--log-every", "1"}), "step:4:" + what), 0) << err_;
      EXPECT_TRUE(contains(err_, "fault: step 4")) << "the fault did not strike";
      const format::SafetensorsFile after(run_file("a", "checkpoint.safetensors")), before(run_file("a", "previous.safetensors"));
      EXPECT_EQ(after.metadata().at("step"), "4");
      EXPECT_EQ(before.metadata().at("step"), "3");
      EXPECT_NE(after.metadata().at("stream"), before.metadata().at("stream")) << "the data goes on";
      for (const auto& entry : after.entries()) {
        const auto x = after.read(entry), y = before.read(*before.find(entry.name));
        EXPECT_EQ(std::memcmp(x.bytes(), y.bytes(), static_cast<std::size_t>(entry.end - entry.begin)), 0) << entry.name;
      }
      EXPECT_EQ(after.metadata().at("skipped"), "1");
      EXPECT_TRUE(contains(err_, " skipped 1"));
      EXPECT_TRUE(contains(text_of(run_file("a", "metrics.jsonl")), "\"event\":\"skipped\",\"step\":4"));
      fs::remove_all(folder() / "a");
    }
  }
}

TEST_F(FirewallTest, TheStepAfterAPoisonedOneIsTheStepItWouldHaveBeen) {
  // Poisoned or not, the update of the step after depends on weights, moments and counts alone.
  ASSERT_EQ(run(train("a", {"--steps", "30", "--ckpt-every", "1", "--log-every", "1"}), "step:7:loss"), 0) << err_;
  ASSERT_EQ(run(train("b", {"--steps", "30", "--ckpt-every", "1", "--log-every", "1"}), "step:7:gradient"), 0) << err_;
  expect_same(run_file("a", "checkpoint.safetensors"), run_file("b", "checkpoint.safetensors"));
}

TEST_F(FirewallTest, NineAmongAHundredStopTheRunWhateverTheLogCadence) {
  for (const std::string log_every : {"1", "7", "1000"}) {
    SCOPED_TRACE(log_every);
    const Words flags = {"--steps", "100", "--ckpt-every", "10", "--eval-every", "1000", "--log-every", log_every};
    ASSERT_EQ(run(train("eight", flags), poisoned(8, 3, 11)), 0) << err_;
    ASSERT_EQ(run(train("nine", flags), poisoned(9, 3, 11, "gradient")), 1) << err_;
    EXPECT_TRUE(contains(error_line(), "stopped at step 91") && contains(error_line(), "checkpoint of step 90 is intact") &&
                contains(error_line(), "lower --lr"))
        << err_;
    expect_whole("nine");
    EXPECT_EQ(step_of(run_file("nine", "checkpoint.safetensors")), 90);
    ASSERT_EQ(run(resume("nine")), 0) << err_;
    for (const char* name : {"eight", "nine"}) fs::remove_all(folder() / name);
  }
}

TEST_F(FirewallTest, ASignalAfterAPoisonedStepStillSaves) {
  Program program(folder(), train("a", {"--steps", "100000", "--log-every", "1"}), "step:5:loss,fsync:2:stall:nothing");
  ASSERT_TRUE(program.wait_for("skipped 1"));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), 143) << program.err();
  EXPECT_GE(step_of(run_file("a", "checkpoint.safetensors")), 5);
}

}  // namespace
}  // namespace dormouse::testing
