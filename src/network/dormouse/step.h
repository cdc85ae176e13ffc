// The step form: the same block for one byte of many sequences. Must agree with loop.h to 1e-4.
#pragma once

#include <cstdint>
#include <span>

#include "network/dormouse/loop.h"
#include "ops/ops.h"

namespace dormouse::network {

// bytes [b], keys [b*3] (of the position), state updated in place, logits [b*256] written. depth 0 = max_iter. Each row's bits do
// not depend on the other rows when `table` has the own GEMM (ops::cpu_table(true)).
void step(const ops::OpTable<float>& table, const ModelConfig& config, const Parameters& parameters, std::span<const std::uint8_t> bytes,
          std::span<const std::uint32_t> keys, LoopState& state, std::span<float> logits, std::int64_t depth = 0);

}  // namespace dormouse::network
