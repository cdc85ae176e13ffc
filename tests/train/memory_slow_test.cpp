// A long run needs no more memory than a short one, with evaluations, saves and logging on the way. The first evaluation asks for
// blocks of its own, which stay.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/threads.h"
#include "support.h"
#include "train/run.h"

namespace dormouse::train {
namespace {

TEST(Memory, PrivateBytesStayFlatWithinOnePercentOverTwoThousandSteps) {
  const testing::TemporaryDirectory directory;
  const auto request = testing::small_request(
      directory, "a", {"d_model=64", "head_dim=32", "engram_rows=4096", "steps=2400", "log_every=20", "eval_every=200", "ckpt_every=200"});
  ASSERT_EQ(run(request, false), 0);
  base::set_threads(0);

  std::vector<double> bytes;  // from step 400 on
  std::ifstream lines(directory.path / "a" / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto step = line.find("\"event\":\"step\",\"step\":"), at = line.find("\"private_bytes\":");
    if (step == std::string::npos || at == std::string::npos) continue;
    if (std::strtol(line.c_str() + step + 22, nullptr, 10) < 400) continue;
    bytes.push_back(std::strtod(line.c_str() + at + 16, nullptr));
  }
  ASSERT_EQ(bytes.size(), 101U);
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  printf("private bytes over 2,000 steps: first %.0f, least %.0f, most %.0f, last %.0f\n", bytes.front(), *least, *most, bytes.back());
  EXPECT_LE(*most, 1.01 * bytes.front());
  EXPECT_GE(*least, 0.99 * bytes.front());
}

}  // namespace
}  // namespace dormouse::train
