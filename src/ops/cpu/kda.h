// The gated delta recurrence on the CPU (ops/ops.h: Kda), chunk form, one (batch, head) unit per thread at a time. A unit's bits
// depend on its own inputs and the CPU level only: not on the thread count, the batch or the other heads.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace dormouse::ops::cpu {

void kda(const Kda& p, const float* q, const float* k, const float* v, const float* g, const float* beta, const float* state0, float* o,
         float* state, float* chunk_states);
void kda_backward(const Kda& p, const float* q, const float* k, const float* v, const float* g, const float* beta,
                  const float* chunk_states, const float* d_o, const float* dstate, float* dq, float* dk, float* dv, float* dg,
                  float* dbeta, float* dstate0);
void kda_step(const Kda& p, const float* q, const float* k, const float* v, const float* g, const float* beta, float* state, float* o);

// Chunks (of one unit) processed since the process started whose decay spans more than kKdaFactoredSpan nats from the
// first row: their pair terms are formed one by one, several times slower. A layer with g >= -5 never has one.
inline constexpr float kKdaFactoredSpan = 80;  // 64 exp(80) is finite in f32; 15 rows of -5 span 75
std::uint64_t kda_pairwise_chunks();

}  // namespace dormouse::ops::cpu
