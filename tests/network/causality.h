// Changing byte j changes no logit before j, exactly.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "network/dormouse/step.h"
#include "support.h"

namespace dormouse::network::testing {

using tensor::Tensor;

// bytes: `batch` rows laid end to end; logits [batch*time, 256].
inline Tensor loop_logits(const ModelConfig& config, Parameters& p, const std::vector<std::uint8_t>& bytes, std::int64_t batch,
                          std::int64_t depth) {
  autograd::Tape tape(false);
  const auto keys = keys_of(config, bytes, batch);
  const LoopInput input{
      .batch = batch, .time = static_cast<std::int64_t>(bytes.size()) / batch, .bytes = bytes, .keys = keys, .targets = {}};
  return loop(tape, config, p, input, {.depth = depth, .want_logits = true}).logits;
}

// Byte by byte.
inline Tensor step_logits(const ModelConfig& config, Parameters& p, const std::vector<std::uint8_t>& bytes, std::int64_t batch,
                          std::int64_t depth) {
  const Weights weights = read_weights(p, config);
  layer::Scratch scratch;
  const std::size_t rows = static_cast<std::size_t>(batch);
  const std::size_t time = bytes.size() / rows;
  Tensor logits = Tensor::empty({static_cast<std::int64_t>(bytes.size()), 256}, tensor::Dtype::f32);
  LoopState state = zero_state(config, batch);
  const auto keys = keys_of(config, bytes, batch);
  std::vector<std::uint8_t> column(rows);
  std::vector<std::uint32_t> column_keys(rows * 3);
  std::vector<float> column_logits(rows * 256);
  for (std::size_t i = 0; i < time; ++i) {
    for (std::size_t r = 0; r < rows; ++r) {
      column[r] = bytes[r * time + i];
      for (std::size_t o = 0; o < 3; ++o) column_keys[r * 3 + o] = keys[(r * time + i) * 3 + o];
    }
    step(ops::cpu_table(true), weights, {.batch = batch, .bytes = column, .keys = column_keys}, state, scratch, column_logits, depth);
    for (std::size_t r = 0; r < rows; ++r) std::copy_n(&column_logits[r * 256], 256, logits.data<float>() + (r * time + i) * 256);
  }
  return logits;
}

// Row r of `changed` differs from `original` at byte changed_at[r] only.
inline void expect_causal(const Tensor& original, const Tensor& changed, const std::vector<std::int64_t>& changed_at, std::int64_t time,
                          const std::string& what) {
  for (std::size_t r = 0; r < changed_at.size(); ++r) {
    double before = 0;
    double after = 0;
    for (std::int64_t i = 0; i < time * 256; ++i) {
      const std::int64_t at = static_cast<std::int64_t>(r) * time * 256 + i;
      double& largest = i < changed_at[r] * 256 ? before : after;
      largest = std::max(largest, std::abs(original.at(at) - changed.at(at)));
    }
    EXPECT_EQ(before, 0) << what << ", byte " << changed_at[r];
    EXPECT_GT(after, 0) << what << ", byte " << changed_at[r] << ": it must change something";
  }
}

// All positions in one call.
inline Tensor read_logits(const ModelConfig& config, Parameters& p, const std::vector<std::uint8_t>& bytes, std::int64_t batch,
                          std::int64_t depth) {
  const Weights weights = read_weights(p, config);
  layer::Scratch scratch;
  LoopState state = zero_state(config, batch);
  const auto keys = keys_of(config, bytes, batch);
  Tensor logits = Tensor::empty({static_cast<std::int64_t>(bytes.size()), 256}, tensor::Dtype::f32);
  step(ops::cpu_table(true), weights,
       {.batch = batch, .time = static_cast<std::int64_t>(bytes.size()) / batch, .bytes = bytes, .keys = keys}, state, scratch,
       {logits.data<float>(), static_cast<std::size_t>(logits.size())}, depth);
  return logits;
}

// At every depth, in the training form, the step form byte by byte and the step form of a whole text.
inline void expect_preset_is_causal(const std::string& name) {
  const std::vector<std::int64_t> changed_at = {0, 1, 15, 16, 17, 33};
  const auto batch = static_cast<std::int64_t>(changed_at.size());
  const std::int64_t time = 34;
  ModelConfig config = preset(name);
  config.engram_rows = 256;     // collisions on purpose; and quick to draw
  config.expert_init = "unit";  // experts that write from the start
  Parameters p = make_parameters(config, 9);
  const auto one = random_bytes(static_cast<std::size_t>(time), 10);
  std::vector<std::uint8_t> original;
  for (std::int64_t r = 0; r < batch; ++r) original.insert(original.end(), one.begin(), one.end());
  auto changed = original;
  for (std::int64_t r = 0; r < batch; ++r) changed[static_cast<std::size_t>(r * time + changed_at[static_cast<std::size_t>(r)])] ^= 0x5a;
  for (std::int64_t depth = 1; depth <= config.max_iter; ++depth) {
    const std::string what = name + " depth " + std::to_string(depth);
    expect_causal(loop_logits(config, p, original, batch, depth), loop_logits(config, p, changed, batch, depth), changed_at, time, what);
    expect_causal(step_logits(config, p, original, batch, depth), step_logits(config, p, changed, batch, depth), changed_at, time,
                  what + ", step form");
    expect_causal(read_logits(config, p, original, batch, depth), read_logits(config, p, changed, batch, depth), changed_at, time,
                  what + ", step form of a whole text");
  }
}

}  // namespace dormouse::network::testing
