// 5,000 steps with saves and evaluations, through two resumes: memory, open files and threads stay as they are.
#include <algorithm>

#include "support.h"

namespace dormouse::testing {
namespace {

class FlatTest : public ProgramTest {
 protected:
  struct Use {
    std::int64_t files = 0, threads = 0;
  };
  // The most of half a second: the threads that read ahead and save come and go.
  static Use most_used(pid_t pid) {
    const auto count = [&](const char* what) {
      std::error_code ignored;
      std::int64_t n = 0;
      for (auto i = fs::directory_iterator("/proc/" + std::to_string(pid) + "/" + what, ignored); i != fs::directory_iterator();
           i.increment(ignored))
        ++n;
      return n;
    };
    Use use;
    for (int i = 0; i < 100; ++i) {
      use = {std::max(use.files, count("fd")), std::max(use.threads, count("task"))};
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return use;
  }
};

TEST_F(FlatTest, MemoryAndHandlesStayFlatOverFiveThousandStepsWithSavesEvaluationsAndResumes) {
  // The heap's own noise reaches 150 kB: the table is wide enough that one percent is twice that.
  const Words flags = {"--steps", "5100", "--ckpt-every", "50", "--eval-every", "100", "--log-every", "20", "--set", "engram_rows=65536"};
  std::vector<Use> uses;
  for (int part = 0; part < 3; ++part) {
    Program program(folder(), part == 0 ? train("a", flags) : resume("a"), "");
    for (const int step : {300, 1400}) {
      ASSERT_TRUE(program.wait_for("\nstep " + std::to_string(1700 * part + step) + " ")) << program.err();
      uses.push_back(most_used(program.pid()));
    }
    if (part < 2) {
      ASSERT_TRUE(program.wait_for("\nstep " + std::to_string(1700 * part + 1660) + " "));
      program.send(part == 0 ? SIGTERM : SIGKILL);
    }
    ASSERT_EQ(program.wait(), part == 0 ? 143 : part == 1 ? 1000 + SIGKILL : 0) << program.err();
  }
  std::int64_t fewest = 1000, most = 0, least_threads = 1000, most_threads = 0;
  for (const Use& use : uses) {
    fewest = std::min(fewest, use.files), most = std::max(most, use.files);
    least_threads = std::min(least_threads, use.threads), most_threads = std::max(most_threads, use.threads);
  }
  printf("open files %ld to %ld, threads %ld to %ld\n", fewest, most, least_threads, most_threads);
  EXPECT_LE(most - fewest, 3) << "a save in progress holds up to three, a leak one or more a save";
  EXPECT_LE(most_threads - least_threads, 1);

  // Within each process, from its 300th step on: the second half against the first.
  std::vector<double> bytes;
  const auto judge = [&] {
    ASSERT_GT(bytes.size(), 10U);
    const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2);
    const double before = *std::max_element(bytes.begin(), middle);
    const double after = *std::max_element(middle, bytes.end());
    printf("private bytes over %zu log lines: at most %.0f, then %.0f\n", bytes.size(), before, after);
    EXPECT_LE(after, 1.01 * before);
    bytes.clear();
  };
  std::int64_t first = 0;
  std::istringstream lines(text_of(run_file("a", "metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find("\"step\":");
    const std::int64_t step = at == std::string::npos ? 0 : std::strtol(line.c_str() + at + 7, nullptr, 10);
    if (contains(line, "\"event\":\"resume\"")) {
      judge();
      first = step;
    }
    const auto memory = line.find("\"private_bytes\":");
    if (memory != std::string::npos && step > first + 300) bytes.push_back(std::strtod(line.c_str() + memory + 16, nullptr));
  }
  judge();
}

}  // namespace
}  // namespace dormouse::testing
