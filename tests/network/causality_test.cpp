// Changing byte j changes no logit before j, exactly; and the chunk form equals the step form.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "causality.h"
#include "network/dormouse/step.h"

namespace dormouse::network {
namespace {

using namespace testing;
using tensor::Tensor;

TEST(Causality, NoByteChangesALogitBeforeItInTinyAtAnyDepthInAnyForm) { expect_preset_is_causal("tiny"); }

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (std::int64_t i = 0; i < b.size(); ++i) largest = std::max(largest, std::abs(a.at(i) - b.at(i)));
  return largest;
}

TEST(Forms, ChunkFormEqualsStepFormOver2000Bytes) {
  ModelConfig config = preset("tiny");
  config.expert_init = "unit";  // experts that write from the start
  Parameters p = make_parameters(config, 2);
  const auto bytes = random_bytes(2000, 12);
  EXPECT_LT(largest_difference(step_logits(config, p, bytes, 1, 0), loop_logits(config, p, bytes, 1, 0)), 1e-4);
}

TEST(Forms, AWholeTextInOneCallHasTheBitsOfItsBytesOneByOne) {
  const ModelConfig config = small_config();
  Parameters p = make_parameters(config, 2);
  perturb(p, config, 3);
  const auto bytes = random_bytes(3 * 50, 12);
  for (const std::int64_t batch : {1, 3}) {
    const Tensor one = step_logits(config, p, bytes, batch, 0), all = read_logits(config, p, bytes, batch, 0);
    EXPECT_EQ(std::memcmp(one.data<float>(), all.data<float>(), static_cast<std::size_t>(one.size()) * sizeof(float)), 0) << batch;
  }
}

TEST(Forms, PrefillInPiecesCarriesTheState) {
  const ModelConfig config = small_config();
  Parameters p = make_parameters(config, 2);
  perturb(p, config, 3);
  const auto bytes = random_bytes(100, 12);
  const auto keys = keys_of(config, bytes, 1);
  const Tensor whole = loop_logits(config, p, bytes, 1, 0);
  LoopState state = zero_state(config, 1);
  std::int64_t at = 0;
  for (const std::int64_t piece : {1, 16, 17, 33, 31, 2}) {
    autograd::Tape tape(false);
    const LoopInput input{.batch = 1,
                          .time = piece,
                          .bytes = std::span(bytes).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(piece)),
                          .keys = std::span(keys).subspan(static_cast<std::size_t>(at * 3), static_cast<std::size_t>(piece * 3)),
                          .targets = {}};
    const Tensor logits = loop(tape, config, p, input, {.want_logits = true, .state = &state}).logits;
    EXPECT_LT(largest_difference(whole.rows_slice(at, piece), logits), 2e-5) << "from byte " << at;
    at += piece;
  }
  EXPECT_EQ(at, 100);
}

TEST(Forms, ARowIsTheSameBitsWhateverStandsBesideIt) {
  const ModelConfig config = small_config();
  Parameters p = make_parameters(config, 2);
  const Weights weights = read_weights(p, config);
  const auto bytes = random_bytes(7, 20);
  const auto keys = keys_of(config, bytes, 7);
  const auto decode = [&](std::size_t first, std::size_t count) {
    LoopState state = zero_state(config, static_cast<std::int64_t>(count));
    layer::Scratch scratch;
    std::vector<float> logits(count * 256);
    const StepInput input{.batch = static_cast<std::int64_t>(count),
                          .bytes = std::span(bytes).subspan(first, count),
                          .keys = std::span(keys).subspan(first * 3, count * 3)};
    for (int repeat = 0; repeat < 3; ++repeat) step(ops::cpu_table(true), weights, input, state, scratch, logits);
    return logits;
  };
  const auto together = decode(0, 7);
  for (std::size_t r = 0; r < 7; ++r) {
    const auto alone = decode(r, 1);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + static_cast<std::ptrdiff_t>(r * 256))) << "row " << r;
  }
}

}  // namespace
}  // namespace dormouse::network
