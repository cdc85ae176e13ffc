// kill -9: at moments drawn from a seed, half of them during a save; and at chosen steps of a whole run.
#include <algorithm>
#include <map>

#include "base/random.h"
#include "ops/cpu_level.h"
#include "support.h"

namespace dormouse::testing {
namespace {

class KillTest : public ProgramTest {
 protected:
  // The numbers of every step line of a run by step; a step trained twice must say the same twice.
  std::map<std::string, std::string> step_lines(const std::string& name) const {
    std::map<std::string, std::string> found;
    std::istringstream lines(text_of(run_file(name, "metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      if (!contains(line, "\"event\":\"step\"")) continue;
      std::string numbers;
      for (const char* key : {"\"ce\":", "\"rec_ce\":", "\"lr\":", "\"gnorm\":", "\"gnorm_all\":", "\"epoch\":", "\"window\":",
                              "\"skipped\":", "\"best\":"}) {
        const auto at = line.find(key);
        numbers += line.substr(at, line.find_first_of(",}", at) - at) + " ";
      }
      const auto at = line.find("\"step\":");
      const auto [place, is_new] = found.emplace(line.substr(at, line.find(',', at) - at), numbers);
      EXPECT_TRUE(is_new || place->second == numbers) << name << " " << place->first << ": " << place->second << " then " << numbers;
    }
    return found;
  }
  void expect_same_run(const std::string& a, const std::string& b) const {
    for (const char* file : {"checkpoint.safetensors", "best.safetensors", "stable.safetensors"})
      expect_same(run_file(a, file), run_file(b, file));
    EXPECT_EQ(step_lines(a), step_lines(b));
  }
};

struct Settings {
  const char* name;
  Words flags;
  friend std::ostream& operator<<(std::ostream& out, const Settings& settings) { return out << settings.name; }
};

class KilledRun : public KillTest, public ::testing::WithParamInterface<Settings> {};

TEST_P(KilledRun, KilledFiveTimesEqualsTheUninterruptedOneBitForBit) {
  if (std::count(GetParam().flags.begin(), GetParam().flags.end(), "bf16") > 0 && !ops::native_bf16())
    GTEST_SKIP() << "no AVX512_BF16 here";
  Words flags = {"--steps", "120", "--eval-every", "10", "--ckpt-every", "7", "--log-every", "1"};
  flags.insert(flags.end(), GetParam().flags.begin(), GetParam().flags.end());
  ASSERT_EQ(run(train("whole", flags)), 0) << err_;
  base::SplitMix64 random(11);
  for (int kill = 0; kill < 5; ++kill) {  // at a line of metrics.jsonl: one a step and a few of events
    const std::string faults = "write:" + std::to_string(8 + random.below(17)) + ":kill:metrics";
    ASSERT_EQ(run(kill == 0 ? train("parts", flags) : resume("parts"), faults), 1000 + SIGKILL) << err_;
  }
  ASSERT_EQ(run(resume("parts")), 0) << err_;
  EXPECT_TRUE(contains(err_, "resumed at step "));
  EXPECT_GT(step_lines("parts").size(), 100U);
  expect_same_run("whole", "parts");
}

// An epoch of the text is 21 steps of 4 windows, so that 120 steps cross five edges.
INSTANTIATE_TEST_SUITE_P(Runs, KilledRun,
                         ::testing::Values(Settings{"Plain", {}}, Settings{"AccumulatedOnTwoThreads", {"--accum", "2", "-t", "2"}},
                                           Settings{"Bf16", {"--compute", "bf16"}},
                                           Settings{"ByDepth", {"--eval-depths", "--opt", "adamw"}}),
                         [](const auto& of) { return std::string(of.param.name); });

// One window a step; an epoch of 2,700 bytes has 84 or 83.
TEST_F(KillTest, ResumesAtBeforeAndAfterAnEpochEdgeEqualTheUninterruptedRun) {
  const Words flags = {"--batch", "1", "--steps", "95", "--ckpt-every", "1", "--log-every", "1", "--eval-every", "1000"};
  ASSERT_EQ(run(train("whole", flags)), 0) << err_;
  // Killed right after the save of step 81, then of every later step up to 87.
  ASSERT_EQ(run(train("parts", flags), "rename:82:done:checkpoint"), 1000 + SIGKILL) << err_;
  for (int step = 82; step <= 87; ++step) {
    ASSERT_EQ(step_of(run_file("parts", "checkpoint.safetensors")), step - 1);
    ASSERT_EQ(run(resume("parts"), "rename:1:done:checkpoint"), 1000 + SIGKILL) << err_;
  }
  ASSERT_EQ(run(resume("parts")), 0) << err_;
  expect_same_run("whole", "parts");
  EXPECT_TRUE(contains(metadata(run_file("whole", "checkpoint.safetensors"), "stream"), "epoch 1 "));
}

// Half of the moments by the clock, half at a call of a save: before it, in its middle, after it. DORMOUSE_KILLS=300 for the long form.
TEST_F(KillTest, KilledAtAnyMomentARunResumesAndNoHalfFileHasAFinalName) {
  const char* wanted = std::getenv("DORMOUSE_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 40;
  const Words flags = {"--steps", "40", "--ckpt-every", "1", "--eval-every", "8"};
  ASSERT_EQ(run(train("whole", flags)), 0) << err_;
  base::SplitMix64 random(static_cast<std::uint64_t>(kills));
  const auto draw = [&](std::uint64_t below) { return random.below(below); };
  const char* const kCalls[][2] = {{"write", "kill"},  {"write", "torn"},  {"write", "done"}, {"fsync", "kill"}, {"fsync", "done"},
                                   {"rename", "kill"}, {"rename", "done"}, {"link", "kill"},  {"link", "done"}};
  int by_clock = 0, in_save = 0, finished = 0;
  Words leftovers;
  for (int i = 0; by_clock + in_save < kills && i < 4 * kills; ++i) {
    const std::string name = "r" + std::to_string(finished);
    const bool clock = by_clock <= in_save;
    const auto& call = kCalls[draw(std::size(kCalls))];
    const std::uint64_t calls = call[0][0] == 'w' ? 600 : 12;
    const std::string faults =
        clock ? ""
              : std::string(call[0]) + ":" + std::to_string(1 + draw(calls)) + ":" + call[1] + (call[0][0] == 'w' ? ":safetensors" : ":");
    Program program(folder(), train(name, flags), faults);
    if (clock) {
      std::this_thread::sleep_for(std::chrono::microseconds(draw(250000)));
      program.send(SIGKILL);
    }
    const int code = program.wait();
    SCOPED_TRACE(faults + "\n" + program.err());
    ASSERT_TRUE(code == 0 || code == 1000 + SIGKILL) << code;
    const bool cleaned = contains(program.err(), "  model ");  // a start that is killed before that leaves what it found
    for (const auto& left : cleaned ? leftovers : Words{})
      EXPECT_FALSE(fs::exists(run_file(name, left))) << "a temporary outlived the next start: " << left;
    if (code == 0) {
      expect_same(run_file("whole", "checkpoint.safetensors"), run_file(name, "checkpoint.safetensors"));
      leftovers.clear();
      fs::remove_all(folder() / name);
      ++finished;
      continue;
    }
    ++(clock ? by_clock : in_save);
    if (!fs::exists(folder() / name)) continue;
    expect_whole(name);
    if (!cleaned) continue;
    leftovers.clear();
    for (const auto& entry : fs::directory_iterator(folder() / name))
      if (contains(entry.path().filename().string(), ".tmp.")) leftovers.push_back(entry.path().filename().string());
  }
  printf("killed %d times by the clock, %d times in a save; %d runs came to their end\n", by_clock, in_save, finished);
  EXPECT_GE(by_clock + in_save, kills);
  EXPECT_GT(finished, 0);
}

}  // namespace
}  // namespace dormouse::testing
