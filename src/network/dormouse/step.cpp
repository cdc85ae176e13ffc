#include "network/dormouse/step.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace dormouse::network {

using tensor::Parameter;

void step(const ops::OpTable<float>& table, const ModelConfig& config, const Parameters& p, std::span<const std::uint8_t> bytes,
          std::span<const std::uint32_t> keys, LoopState& state, std::span<float> logits, std::int64_t depth) {
  if (depth == 0) depth = config.max_iter;
  if (depth < 1 || depth > config.max_iter) {
    throw base::Error("depth " + std::to_string(depth) + " is outside 1.." + std::to_string(config.max_iter) + ", the model's max_iter");
  }
  const auto b = static_cast<std::int64_t>(bytes.size());
  const std::int64_t d = config.d_model;
  const std::int64_t width = p.controller.value.dim(1);
  const std::int64_t gate_width = 3 + config.n_experts;
  const std::int64_t k = std::max(p.readout.u.value.dim(1), p.head.u.value.dim(1));
  const layer::KdaShape attention_shape{.d = d, .heads = config.n_heads, .head_dim = config.head_dim};
  const auto data = [](const Parameter& parameter) { return parameter.value.data<float>(); };
  const auto buffer = [](std::int64_t n) { return std::vector<float>(static_cast<std::size_t>(n)); };

  auto h = buffer(b * d), u = buffer(b * d), z = buffer(b * d), attention = buffer(b * d), memory = buffer(b * d), dense = buffer(b * d),
       ffn = buffer(b * d), readout = buffer(b * d), mean = buffer(b * d), key = buffer(b * d), value = buffer(b * d), inv = buffer(b),
       c0 = buffer(b * width), c = buffer(b * width), gate = buffer(b * gate_width), middle = buffer(b * k);

  const std::vector<std::uint32_t> index(bytes.begin(), bytes.end());
  table.gather(b, d, index.data(), data(p.embedding), h.data());
  table.gemm({.m = b, .n = width, .k = d, .lda = d, .ldb = width, .ldc = width}, h.data(), data(p.controller) + d * width, c0.data());
  if (config.use_engram) layer::engram_rows_step(table, p.engram, layer::engram_slots(keys, config.engram_rows), key.data(), value.data());

  for (std::int64_t n = 0; n < depth; ++n) {
    table.add_row(b, d, h.data(), data(p.iteration_embedding) + n * d, u.data());
    table.rms_norm({.rows = b, .d = d, .eps = config.norm_eps}, u.data(), data(p.loop_norm), z.data(), inv.data());
    c = c0;
    table.gemm({.m = b, .n = width, .k = d, .lda = d, .ldb = width, .ldc = width, .accumulate = true}, u.data(), data(p.controller),
               c.data());
    table.gates({.rows = b,
                 .experts = config.n_experts,
                 .width = width,
                 .lam_max = config.engram_lam_max,
                 .smooth = config.engram_gate == "smooth"},
                c.data(), gate.data());

    if (config.use_kda) {
      float* kda_state = state.kda[static_cast<std::size_t>(n)].data<float>();
      layer::kda_step(table, p.attention, attention_shape, b, z.data(), kda_state, attention.data());
    }
    if (config.use_engram) layer::engram_step(table, b, d, key.data(), value.data(), u.data(), memory.data());
    table.gemm({.m = b, .n = d, .k = d, .lda = d, .ldb = d, .ldc = d}, z.data(), data(p.memory_dense), dense.data());
    layer::experts_step(table, p.experts, b, z.data(), gate.data(), gate_width, ffn.data());

    table.residual({.rows = b, .d = d, .gate_width = gate_width}, u.data(), data(p.residual_scale), gate.data(),
                   config.use_kda ? attention.data() : nullptr, config.use_engram ? memory.data() : nullptr, dense.data(), ffn.data(),
                   h.data());
    layer::spectral_step(table, p.readout, b, h.data(), nullptr, 0, false, middle.data(), readout.data());
    table.axpy(b * d, 1.0F / static_cast<float>(depth), readout.data(), mean.data());
  }

  table.rms_norm({.rows = b, .d = d, .eps = config.norm_eps}, mean.data(), data(p.final_norm), z.data(), inv.data());
  layer::spectral_step(table, p.head, b, z.data(), nullptr, 0, false, middle.data(), logits.data());
}

}  // namespace dormouse::network
