#include "network/dormouse/loop.h"

#include <algorithm>

#include "autograd/ops.h"
#include "base/error.h"
#include "network/dormouse/stats.h"

namespace dormouse::network {

using autograd::Precision;
using autograd::Stage;
using autograd::Tape;
using autograd::Var;
using tensor::Dtype;
using tensor::Tensor;

namespace {

// The head's middle [N,k] of a readout [N,d]; logits = middle V^T. Always f32.
Var head_middle(Tape& tape, const ModelConfig& config, Parameters& p, const Var& readout) {
  const Stage stage(tape, "head");
  return layer::spectral_middle(tape, p.head, rms_norm(tape, readout, tape.parameter(p.final_norm), config.norm_eps), Precision::f32);
}

Var nats(Tape& tape, Parameters& p, const Var& middle, const Tensor& target) {
  const Stage stage(tape, "head");
  return cross_entropy(tape, middle, tape.parameter(p.head.v), target);
}

Var readout(Tape& tape, Parameters& p, const Var& h) {
  const Stage stage(tape, "readout");
  return layer::spectral(tape, p.readout, h);
}

Tensor as_index(std::span<const std::uint8_t> bytes) {
  Tensor index = Tensor::empty({static_cast<std::int64_t>(bytes.size())}, Dtype::u32);
  std::copy(bytes.begin(), bytes.end(), index.data<std::uint32_t>());
  return index;
}

}  // namespace

LoopState zero_state(const ModelConfig& config, std::int64_t batch) {
  LoopState state;
  if (!config.use_kda) return state;
  for (std::int64_t n = 0; n < config.max_iter; ++n) {
    state.kda.push_back(Tensor::zeros({batch, config.n_heads, config.head_dim, config.head_dim}, Dtype::f32));
  }
  return state;
}

LoopOutput loop(Tape& tape, const ModelConfig& config, Parameters& p, const LoopInput& input, const LoopOptions& options) {
  const std::int64_t depth = options.depth == 0 ? config.max_iter : options.depth;
  if (depth < 1 || depth > config.max_iter) {
    throw base::Error("depth " + std::to_string(depth) + " is outside 1.." + std::to_string(config.max_iter) + ", the model's max_iter");
  }
  const std::int64_t d = config.d_model;
  const layer::KdaShape attention_shape{.d = d, .heads = config.n_heads, .head_dim = config.head_dim};
  const Tensor target = input.targets.empty() ? Tensor() : Tensor::from<std::uint8_t>({input.batch * input.time}, input.targets);

  const Var h0 = gather(tape, as_index(input.bytes), tape.parameter(p.embedding));
  const Var controller = tape.parameter(p.controller);
  const Var controller_u = slice_rows(tape, controller, 0, d);
  const Var controller_h0 = matmul(tape, h0, slice_rows(tape, controller, d, d));
  layer::EngramRows memory_rows;
  if (config.use_engram) memory_rows = layer::engram_rows(tape, p.engram, layer::engram_slots(input.keys, config.engram_rows));

  LoopOutput out;
  std::vector<Var> readouts;
  Var h = h0;
  for (std::int64_t n = 0; n < depth; ++n) {
    const Var u = add_row(tape, h, slice_rows(tape, tape.parameter(p.iteration_embedding), n, 1));
    const Var z = rms_norm(tape, u, tape.parameter(p.loop_norm), config.norm_eps);
    const Var c = matmul_add(tape, controller_h0, u, controller_u);
    const Var gate = gates(tape, c, config.n_experts, config.engram_lam_max, config.engram_gate == "smooth");

    Var attention;
    if (config.use_kda) {
      Tensor* state = options.state == nullptr ? nullptr : &options.state->kda[static_cast<std::size_t>(n)];
      attention = layer::kda(tape, p.attention, attention_shape, input.batch, input.time, z, state == nullptr ? Tensor() : *state, state);
    }
    Var memory;
    if (config.use_engram) memory = layer::engram(tape, memory_rows, u);
    const Var dense = matmul(tape, z, tape.parameter(p.memory_dense));
    const Var ffn = layer::experts(tape, p.experts, z, gate);

    h = residual(tape, u, tape.parameter(p.residual_scale), gate, attention, memory, dense, ffn);
    readouts.push_back(readout(tape, p, h));
    if (options.want_stats) out.stats.push_back(iteration_stats(config, u.value(), gate.value()));
    if (target.defined()) {
      out.nats.push_back(nats(tape, p, head_middle(tape, config, p, readouts.back()), target));
    }
  }

  const Var middle = head_middle(tape, config, p, mean_of(tape, readouts));
  if (options.want_logits) out.logits = matmul_transposed(tape, middle, tape.parameter(p.head.v), Precision::f32).value();
  if (target.defined()) {
    out.final_nats = nats(tape, p, middle, target);
    std::vector<Var> terms = out.nats;
    std::vector<double> weights(terms.size(), 1.0 / static_cast<double>(depth));
    terms.push_back(out.final_nats);
    weights.push_back(config.fin_weight);
    out.loss = weighted_mean(tape, terms, weights);
  }
  return out;
}

}  // namespace dormouse::network
