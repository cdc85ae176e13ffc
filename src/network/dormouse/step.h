// The step form: the same block for the next bytes of many sequences, position by position. Must agree with loop.h to 1e-4.
#pragma once

#include <cstdint>
#include <span>

#include "network/dormouse/loop.h"
#include "network/dormouse/weights.h"
#include "ops/ops.h"

namespace dormouse::network {

struct StepInput {
  std::int64_t batch = 0, time = 1;
  std::span<const std::uint8_t> bytes;  // [b*t]
  std::span<const std::uint32_t> keys;  // [b*t*3], of the positions; empty when use_engram is off
  std::int64_t first = 0;               // of the sequences of the state
};

// Reads the bytes: states [first, first + batch) are updated in place. logits: [b*t,256], of the byte after each, or [b,256], after the
// last one; their size says which. depth 0 = max_iter; base::Error when the model has no such depth. A sequence's bits depend neither on
// the others nor on how its text is cut into calls, nor on the threads.
void step(const ops::OpTable<float>& table, const Weights& weights, const StepInput& input, LoopState& state, layer::Scratch& scratch,
          std::span<float> logits, std::int64_t depth = 0);

}  // namespace dormouse::network
