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

// What every iteration reads besides the stream.
struct Shared {
  const ModelConfig& config;
  Parameters& p;
  std::int64_t batch, time;
  Tensor target;  // undefined: no losses
  Var controller_u, controller_h0;
  layer::EngramRows memory_rows;
};

struct Iteration {
  Var h, readout, nats;  // nats: undefined without targets
  Var u, gate;
};

// One pass of the block, the n-th from 0: h [N,d] to the next h.
Iteration iterate(Tape& tape, const Shared& shared, const Var& h, std::int64_t n, Tensor* state) {
  const ModelConfig& config = shared.config;
  Parameters& p = shared.p;
  const layer::KdaShape attention_shape{.d = config.d_model, .heads = config.n_heads, .head_dim = config.head_dim};
  const Var u = add_row(tape, h, slice_rows(tape, tape.parameter(p.iteration_embedding), n, 1));
  const Var z = rms_norm(tape, u, tape.parameter(p.loop_norm), config.norm_eps);
  const Var c = matmul_add(tape, shared.controller_h0, u, shared.controller_u);
  const Var gate = gates(tape, c, config.n_experts, config.engram_lam_max, config.engram_gate == "smooth");

  Var attention;
  if (config.use_kda) {
    attention = layer::kda(tape, p.attention, attention_shape, shared.batch, shared.time, z, state == nullptr ? Tensor() : *state, state);
  }
  Var memory;
  if (config.use_engram) memory = layer::engram(tape, shared.memory_rows, u);
  const Var dense = matmul(tape, z, tape.parameter(p.memory_dense));
  const Var ffn = layer::experts(tape, p.experts, z, gate);

  Iteration out;
  out.u = u;
  out.gate = gate;
  out.h = residual(tape, u, tape.parameter(p.residual_scale), gate, attention, memory, dense, ffn);
  out.readout = readout(tape, p, out.h);
  if (shared.target.defined()) out.nats = nats(tape, p, head_middle(tape, config, p, out.readout), shared.target);
  return out;
}

// The same, made again in backward instead of kept for it.
Iteration iterate_again(Tape& tape, const Shared& shared, const Var& h, std::int64_t n) {
  const auto outputs = tape.recompute([&tape, shared, h, n] {
    const Iteration made = iterate(tape, shared, h, n, nullptr);
    return std::vector<Var>{made.h, made.readout, made.nats, made.u, made.gate};
  });
  return {.h = outputs[0], .readout = outputs[1], .nats = outputs[2], .u = outputs[3], .gate = outputs[4]};
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
  if (options.recompute && options.state != nullptr) throw base::Error("a loop that carries a state cannot recompute its iterations");
  const std::int64_t d = config.d_model;
  const Var h0 = gather(tape, as_index(input.bytes), tape.parameter(p.embedding));
  const Var controller = tape.parameter(p.controller);
  Shared shared{.config = config,
                .p = p,
                .batch = input.batch,
                .time = input.time,
                .target = {},
                .controller_u = slice_rows(tape, controller, 0, d),
                .controller_h0 = matmul(tape, h0, slice_rows(tape, controller, d, d)),
                .memory_rows = {}};
  if (config.use_engram) shared.memory_rows = layer::engram_rows(tape, p.engram, layer::engram_slots(input.keys, config.engram_rows));
  if (!input.targets.empty()) shared.target = Tensor::from<std::uint8_t>({input.batch * input.time}, input.targets);

  LoopOutput out;
  std::vector<Var> readouts;
  Var h = h0;
  for (std::int64_t n = 0; n < depth; ++n) {
    Tensor* state = options.state == nullptr || !config.use_kda ? nullptr : &options.state->kda[static_cast<std::size_t>(n)];
    const Iteration made = options.recompute ? iterate_again(tape, shared, h, n) : iterate(tape, shared, h, n, state);
    h = made.h;
    readouts.push_back(made.readout);
    if (made.nats.defined()) out.nats.push_back(made.nats);
    if (options.want_stats) out.stats.push_back(iteration_stats(config, made.u.value(), made.gate.value()));
  }

  const Var middle = head_middle(tape, config, p, mean_of(tape, readouts));
  if (options.want_logits) out.logits = matmul_transposed(tape, middle, tape.parameter(p.head.v), Precision::f32).value();
  if (shared.target.defined()) {
    out.final_nats = nats(tape, p, middle, shared.target);
    std::vector<Var> terms = out.nats;
    std::vector<double> weights(terms.size(), 1.0 / static_cast<double>(depth));
    terms.push_back(out.final_nats);
    weights.push_back(config.fin_weight);
    out.loss = weighted_mean(tape, terms, weights);
  }
  return out;
}

}  // namespace dormouse::network
