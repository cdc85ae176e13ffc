// How much memory a run takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/threads.h"
#include "support.h"
#include "train/plan.h"
#include "train/run.h"
#include "train/step.h"

namespace dormouse::train {
namespace {

// With evaluations, saves and logging on the way. The first evaluations and saves, those of steps 200 and 400, ask for blocks of their own,
// which stay; step 400 is logged before them. From then on the heap was seen to take up to 140 kB more, when two threads ask it at once;
// the table is wide enough that one percent is several times that.
TEST(Memory, PrivateBytesStayFlatWithinOnePercentOverTwoThousandSteps) {
  const testing::TemporaryDirectory directory;
  const auto request = testing::small_request(directory, "a",
                                              {"d_model=64", "head_dim=32", "engram_rows=32768", "steps=2420", "log_every=20",
                                               "eval_every=200", "ckpt_every=200", "eval_bytes=10000"});
  ASSERT_EQ(run(request, false), 0);
  base::set_threads(0);

  std::vector<double> bytes;  // from step 420 on
  std::ifstream lines(directory.path / "a" / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto step = line.find("\"event\":\"step\",\"step\":"), at = line.find("\"private_bytes\":");
    if (step == std::string::npos || at == std::string::npos) continue;
    if (std::strtol(line.c_str() + step + 22, nullptr, 10) <= 400) continue;
    bytes.push_back(std::strtod(line.c_str() + at + 16, nullptr));
  }
  ASSERT_EQ(bytes.size(), 101U);
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  printf("private bytes over 2,000 steps: first %.0f, least %.0f, most %.0f, last %.0f\n", bytes.front(), *least, *most, bytes.back());
  EXPECT_LE(*most, 1.01 * bytes.front());
  EXPECT_GE(*least, 0.99 * bytes.front());
}

// Blocks stay in the pool, so private memory after a step is the most that the steps so far had in use.
TEST(Memory, RecomputedIterationsTakeLessAsPlanned) {
  RunConfig config = testing::small_config(8, 256);
  config.model.d_model = 128;
  config.model.d_ffn = 256;
  config.model.n_heads = 4;
  config.model.head_dim = 32;
  config.model.max_iter = 8;
  data::Batch batch{.rows = config.train.batch, .seq_len = config.train.seq_len, .bytes = {}};
  const std::string text = testing::some_text(static_cast<std::size_t>(batch.rows * (batch.seq_len + 1)));
  batch.bytes.assign(text.begin(), text.end());
  const StepData data = make_step_data({batch}, config.model);
  const auto start = base::private_memory();
  const auto most = [&](bool recompute) {
    config.train.recompute = recompute;
    Trainer trainer(config, network::make_parameters(config.model, 1));
    for (int i = 0; i < 2; ++i) trainer.step(data, {1e-3, 1e-3}, false);
    const auto taken = static_cast<double>(base::private_memory() - start), planned = static_cast<double>(plan_memory(config, 0).total());
    printf("recompute %d: %.1f MB, planned %.1f MB\n", recompute ? 1 : 0, taken / 1e6, planned / 1e6);
    EXPECT_LT(taken, 1.15 * planned);
    EXPECT_GT(taken, 0.5 * planned);
    return taken;
  };
  const double less = most(true);
  EXPECT_LT(less, 0.5 * most(false));
}

}  // namespace
}  // namespace dormouse::train
