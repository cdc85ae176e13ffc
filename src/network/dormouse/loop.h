// The training form of the network: the loop over one weight-shared block, on a tape.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/tape.h"
#include "network/dormouse/parameters.h"

namespace dormouse::network {

// What decoding carries from one byte to the next: one KDA state per iteration.
struct LoopState {
  std::vector<tensor::Tensor> kda;  // T x [b,H,hd,hd]
};
LoopState zero_state(const ModelConfig& config, std::int64_t batch);

struct LoopInput {
  std::int64_t batch = 0, time = 0;
  std::span<const std::uint8_t> bytes;    // [b*t]
  std::span<const std::uint32_t> keys;    // [b*t*3], table::ngram_keys per row; empty when use_engram is off
  std::span<const std::uint8_t> targets;  // [b*t] or empty (no losses)
};

struct IterationStats {
  double u_rms = 0;           // rms of u
  double attention_gate = 0;  // means of w_a, lam, w_f
  double memory_gate = 0, ffn_gate = 0;
  double attention_saturated = 0, memory_saturated = 0,
         ffn_saturated = 0;  // share of positions with the sigmoid outside (.01,.99) / lam at lam_max
};

struct LoopOptions {
  std::int64_t depth = 0;    // 0 = max_iter
  bool want_logits = false;  // logits [b*t,256] of the mean readout
  bool want_stats = false;
  bool recompute = false;      // each iteration is made again in backward instead of kept for it; same bits; not with a state
  LoopState* state = nullptr;  // in: state before the first byte; out: after the last. null = zeros, dropped
};

struct LoopOutput {
  autograd::Var loss;               // [1] rec + fin_weight * fin, mean over positions; undefined without targets
  autograd::Var final_nats;         // [b*t] cross-entropy of the final readout
  std::vector<autograd::Var> nats;  // per iteration [b*t]
  tensor::Tensor logits;            // f32 [b*t,256] or undefined
  std::vector<IterationStats> stats;
};

// The tape's backward reads config and parameters again when options.recompute is set: they must outlive the tape.
LoopOutput loop(autograd::Tape& tape, const ModelConfig& config, Parameters& parameters, const LoopInput& input,
                const LoopOptions& options = {});

}  // namespace dormouse::network
