#include "train/plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/threads.h"
#include "base/units.h"
#include "network/dormouse/parameters.h"

namespace dormouse::train {
std::int64_t parameter_count(const network::ModelConfig& c) {
  auto shapes = network::declare_shapes(c);
  return network::count(shapes, c);
}

MemoryPlan plan_memory(const RunConfig& config, std::uint64_t corpus_bytes) {
  const auto& c = config.model;
  MemoryPlan plan;
  plan.parameters = static_cast<std::uint64_t>(parameter_count(c)) * 4;
  plan.gradients = plan.parameters;
  const std::int64_t inner = c.use_kda ? c.n_heads * c.head_dim : 0;
  const std::int64_t matrix = std::max(c.d_model * std::max(c.d_model, inner), c.d_ffn * std::min(c.rank, c.d_ffn));
  constexpr std::int64_t kCopies = 6;  // that Newton-Schulz keeps of the matrix a thread works on
  plan.optimizer = 2 * plan.parameters + static_cast<std::uint64_t>(kCopies * matrix * base::threads()) * 4;  // two moments at most
  plan.copy = 3 * plan.parameters;
  // What one iteration keeps for the backward pass, floats per position: the stream and its norm, KDA's projections, unit vectors, decays,
  // chunk states and outputs, the memory's read, the experts' two wide and four narrow rows, residual and readout.
  const std::int64_t chunk = c.use_kda ? inner * c.head_dim / ops::kKdaChunk : 0;
  const std::int64_t narrow = std::min(c.rank, c.d_model);
  const std::int64_t iteration = 8 * c.d_model + 13 * inner + chunk + c.n_experts * (2 * c.d_ffn + 4 * narrow) + 4 * narrow;
  // Backward adds its own buffers for about one iteration. Recomputed iterations leave the stream and the readout.
  plan.recompute = config.train.recompute;
  const std::int64_t kept = plan.recompute ? iteration + c.max_iter * 2 * c.d_model : c.max_iter * iteration;
  const std::int64_t floats = kept + iteration + 6 * c.d_model;
  plan.activations = static_cast<std::uint64_t>(config.train.batch * config.train.seq_len) * static_cast<std::uint64_t>(floats) * 4;
  plan.data = std::min<std::uint64_t>(corpus_bytes, 128U << 20);
  return plan;
}

std::string MemoryPlan::text() const {
  return fmt::format("{}: weights {}, gradients {}, optimizer {}, activations {}; saves beside training at most {} more",
                     base::human_bytes(total()), base::human_bytes(parameters), base::human_bytes(gradients), base::human_bytes(optimizer),
                     base::human_bytes(activations), base::human_bytes(copy));
}

void refuse_above(const MemoryPlan& plan, std::uint64_t available) {
  if (plan.total() <= available) return;
  throw base::Error(fmt::format(
      "the run needs about {} of memory and {} is available ({}); {}lower --batch (raise --accum), --seq-len, engram_rows (--set), or the "
      "model",
      base::human_bytes(plan.total()), base::human_bytes(available), plan.text(),
      plan.recompute ? "" : "keep less for the backward pass: --set recompute=true, "));
}

}  // namespace dormouse::train
