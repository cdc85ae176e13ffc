#include "network/dormouse/flops.h"

#include <algorithm>

#include "ops/ops.h"
#include "table/keys.h"

namespace dormouse::network {
namespace {

double product(std::int64_t in, std::int64_t out) { return 2.0 * static_cast<double>(in) * static_cast<double>(out); }

// x -> x U -> (x U) V^T
double spectral(std::int64_t in, std::int64_t out, std::int64_t rank) {
  const std::int64_t k = std::max<std::int64_t>(1, std::min({rank, in, out}));
  return product(in, k) + product(k, out);
}

}  // namespace

std::vector<StageFlops> flops_per_position(const ModelConfig& c) {
  const std::int64_t d = c.d_model, hd = c.head_dim, width = c.n_heads * hd;
  const std::int64_t controller = (3 + c.n_experts + 3) / 4 * 4;
  const auto depth = static_cast<double>(c.max_iter);
  std::vector<StageFlops> all;
  all.push_back({"", product(d, controller) + depth * (product(d, controller) + product(d, d))});
  if (c.use_kda) {
    const double projections = 4 * product(d, width) + product(d, hd) + product(hd, width) + product(d, c.n_heads) + product(width, d);
    // In a chunk of C rows, per row and head: the state read twice and written once, five products with the other rows.
    const double recurrence = static_cast<double>(c.n_heads) * (3 * product(hd, hd) + 5 * product(ops::kKdaChunk, hd));
    all.push_back({"attention", depth * projections});
    all.push_back({"recurrence", depth * recurrence});
  }
  if (c.use_engram) all.push_back({"memory", 2 * product(table::kOrders * c.engram_dim, d)});
  all.push_back({"experts", depth * static_cast<double>(c.n_experts) * (spectral(d, c.d_ffn, c.rank) + spectral(c.d_ffn, d, c.rank))});
  all.push_back({"readout", depth * spectral(d, d, c.rank)});
  all.push_back({"head", (depth + 1) * spectral(d, 256, c.rank)});
  return all;
}

}  // namespace dormouse::network
