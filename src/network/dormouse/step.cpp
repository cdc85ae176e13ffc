#include "network/dormouse/step.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace dormouse::network {

void step(const ops::OpTable<float>& table, const Weights& w, const StepInput& input, LoopState& state, layer::Scratch& scratch,
          std::span<float> logits, std::int64_t depth) {
  const ModelConfig& config = w.config;
  if (depth == 0) depth = config.max_iter;
  if (depth < 1 || depth > config.max_iter) {
    throw base::Error("depth " + std::to_string(depth) + " is outside 1.." + std::to_string(config.max_iter) + ", the model's max_iter");
  }
  const auto size = [](const auto& span) { return static_cast<std::int64_t>(span.size()); };
  const std::int64_t rows = input.batch * input.time;
  if (input.batch < 1 || input.time < 1 || size(input.bytes) != rows || (config.use_engram && size(input.keys) != 3 * rows) ||
      (size(logits) != 256 * rows && size(logits) != 256 * input.batch) || input.first < 0 ||
      (config.use_kda && input.first + input.batch > state.kda.front().dim(0))) {
    throw base::Error("step: its bytes, keys, logits and states are not of one size");
  }
  const std::int64_t d = config.d_model, width = w.controller_u.n(), gate_width = 3 + config.n_experts;
  const layer::KdaShape heads{.d = d, .heads = config.n_heads, .head_dim = config.head_dim};
  scratch.restart();
  const auto buffer = [&](std::int64_t columns) { return scratch.take(rows * columns); };
  float *h = buffer(d), *u = buffer(d), *z = buffer(d), *attention = buffer(d), *memory = buffer(d), *dense = buffer(d), *ffn = buffer(d),
        *mean = buffer(d), *key = buffer(d), *value = buffer(d), *inv = buffer(1), *c0 = buffer(width), *c = buffer(width),
        *gate = buffer(gate_width), *memory_saved = buffer(4);
  std::fill_n(mean, rows * d, 0.0F);

  w.embedding.gather(std::vector<std::uint32_t>(input.bytes.begin(), input.bytes.end()), h);
  table.products(rows, {{{&w.controller_h0, h, c0}}}, ops::Sweep::forward);
  if (config.use_engram) layer::engram_rows_step(table, w.engram, layer::engram_slots(input.keys, config.engram_rows), scratch, key, value);

  // What iteration n reads, rows [begin, end): u, its norm z and the memory.
  const auto enter = [&](std::int64_t n, std::int64_t begin, std::int64_t end) {
    const std::int64_t x = begin * d;
    table.add_row(end - begin, d, h + x, &w.iteration_embedding[static_cast<std::size_t>(n * d)], u + x);
    table.rms_norm({.rows = end - begin, .d = d, .eps = config.norm_eps}, u + x, w.loop_norm.data(), z + x, inv + begin);
    if (config.use_engram) layer::engram_step(table, end - begin, d, key + x, value + x, u + x, memory + x, memory_saved + 4 * begin);
  };
  table.split(rows, 4 * rows * d, [&](std::int64_t begin, std::int64_t end) { enter(0, begin, end); });
  for (std::int64_t n = 0; n < depth; ++n) {
    const layer::Scratch::Frame frame(scratch);
    table.products(rows, {{{&w.controller_u, u, c}}}, ops::Sweep::forward);
    table.axpy(rows * width, 1.0F, c0, c);
    table.gates({.rows = rows,
                 .experts = config.n_experts,
                 .width = width,
                 .lam_max = config.engram_lam_max,
                 .smooth = config.engram_gate == "smooth"},
                c, gate);

    const auto attend = [&](ops::Sweep sweep) {
      if (!config.use_kda) return;
      float* kda_state = state.kda[static_cast<std::size_t>(n)].data<float>() + input.first * heads.heads * heads.head_dim * heads.head_dim;
      layer::kda_step(table, w.attention, heads, input.batch, input.time, z, sweep, kda_state, scratch, attention);
    };
    const auto read_dense = [&] { table.products(rows, {{{&w.memory_dense, z, dense}}}, ops::Sweep::forward); };
    const auto blend = [&] { layer::experts_step(table, w.experts, rows, z, gate, gate_width, scratch, ffn); };
    // The weights of an iteration outgrow a core's cache, and what was read last is in it still: every other iteration goes the other way.
    if (n % 2 == 0) {
      attend(ops::Sweep::backward);
      blend();
      read_dense();
    } else {
      read_dense();
      blend();
      attend(ops::Sweep::forward);
    }

    table.split(rows, 8 * rows * d, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t x = begin * d;
      table.residual({.rows = end - begin, .d = d, .gate_width = gate_width}, u + x, w.residual_scale.data(), gate + begin * gate_width,
                     config.use_kda ? attention + x : nullptr, config.use_engram ? memory + x : nullptr, dense + x, ffn + x, h + x);
      table.axpy((end - begin) * d, 1.0F / static_cast<float>(depth), h + x, mean + x);
      if (n + 1 < depth) enter(n + 1, begin, end);
    });
  }

  // OutProj is linear: the mean of the readouts is the readout of the mean.
  const std::int64_t wanted = size(logits) / 256;
  if (wanted < rows) {
    for (std::int64_t i = 0; i < input.batch; ++i) std::copy_n(mean + ((i + 1) * input.time - 1) * d, d, u + i * d);
    std::swap(mean, u);
  }
  layer::spectral_step(table, w.readout, wanted, mean, scratch, h);
  table.rms_norm({.rows = wanted, .d = d, .eps = config.norm_eps}, h, w.final_norm.data(), z, inv);
  layer::spectral_step(table, w.head, wanted, z, scratch, logits.data());
}

}  // namespace dormouse::network
