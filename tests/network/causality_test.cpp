// Changing byte j changes no logit before j, exactly; and the chunk form equals the step form.
#include <gtest/gtest.h>

#include <cmath>

#include "network/dormouse/step.h"
#include "support.h"

namespace dormouse::network {
namespace {

using namespace testing;
using tensor::Tensor;

Tensor loop_logits(const ModelConfig& config, Parameters& p, const std::vector<std::uint8_t>& bytes, std::int64_t depth,
                   ops::Compute compute) {
  autograd::Tape tape(false, compute);
  const auto keys = keys_of(config, bytes, 1);
  const LoopInput input{.batch = 1, .time = static_cast<std::int64_t>(bytes.size()), .bytes = bytes, .keys = keys, .targets = {}};
  return loop(tape, config, p, input, {.depth = depth, .want_logits = true}).logits;
}

Tensor step_logits(const ModelConfig& config, Parameters& p, const std::vector<std::uint8_t>& bytes, std::int64_t depth) {
  const auto n = static_cast<std::int64_t>(bytes.size());
  Tensor logits = Tensor::empty({n, 256}, tensor::Dtype::f32);
  LoopState state = zero_state(config, 1);
  const auto keys = keys_of(config, bytes, 1);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    step(ops::cpu_table(true), config, p, std::span(bytes).subspan(at, 1), std::span(keys).subspan(at * 3, 3), state,
         std::span<float>(logits.data<float>() + i * 256, 256), depth);
  }
  return logits;
}

void expect_equal_before(const Tensor& a, const Tensor& b, std::int64_t positions, const std::string& what) {
  double largest = 0;
  for (std::int64_t i = 0; i < positions * 256; ++i) largest = std::max(largest, std::abs(a.at(i) - b.at(i)));
  EXPECT_EQ(largest, 0) << what;
  double after = 0;
  for (std::int64_t i = positions * 256; i < a.size(); ++i) after = std::max(after, std::abs(a.at(i) - b.at(i)));
  EXPECT_GT(after, 0) << what << ": the changed byte must change something";
}

TEST(Causality, NoByteChangesALogitBeforeItInAnyPresetAtAnyDepthInEitherForm) {
  for (const auto name : preset_names()) {
    ModelConfig config = preset(name);
    config.engram_rows = 256;  // collisions on purpose; and quick to draw
    Parameters p = make_parameters(config, 9);
    auto bytes = random_bytes(40, 10);
    for (std::int64_t depth = 1; depth <= config.max_iter; ++depth) {
      const Tensor chunk = loop_logits(config, p, bytes, depth, ops::Compute::f32);
      const Tensor stepped = config.d_model <= 512 ? step_logits(config, p, bytes, depth) : Tensor();
      for (const std::int64_t j : {0, 1, 15, 16, 17, 33, 39}) {
        auto changed = bytes;
        changed[static_cast<std::size_t>(j)] ^= 0x5a;
        const std::string what = std::string(name) + " depth " + std::to_string(depth) + " byte " + std::to_string(j);
        expect_equal_before(chunk, loop_logits(config, p, changed, depth, ops::Compute::f32), j, what);
        if (stepped.defined() && (j == 16 || j == 39))
          expect_equal_before(stepped, step_logits(config, p, changed, depth), j, what + " step");
      }
    }
  }
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (std::int64_t i = 0; i < b.size(); ++i) largest = std::max(largest, std::abs(a.at(i) - b.at(i)));
  return largest;
}

TEST(Forms, ChunkFormEqualsStepFormOver2000Bytes) {
  ModelConfig config = preset("tiny");
  Parameters p = make_parameters(config, 2);
  const auto bytes = random_bytes(2000, 12);
  EXPECT_LT(largest_difference(step_logits(config, p, bytes, 0), loop_logits(config, p, bytes, 0, ops::Compute::f32)), 1e-4);
}

TEST(Forms, PrefillInPiecesCarriesTheState) {
  const ModelConfig config = small_config();
  Parameters p = make_parameters(config, 2);
  perturb(p, config, 3);
  const auto bytes = random_bytes(100, 12);
  const auto keys = keys_of(config, bytes, 1);
  const Tensor whole = loop_logits(config, p, bytes, 0, ops::Compute::f32);
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
  const auto bytes = random_bytes(7, 20);
  const auto keys = keys_of(config, bytes, 7);
  const auto decode = [&](std::size_t first, std::size_t count) {
    LoopState state = zero_state(config, static_cast<std::int64_t>(count));
    std::vector<float> logits(count * 256);
    for (int repeat = 0; repeat < 3; ++repeat) {
      step(ops::cpu_table(true), config, p, std::span(bytes).subspan(first, count), std::span(keys).subspan(first * 3, count * 3), state,
           logits);
    }
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
