#include "network/dormouse/flops.h"

#include <initializer_list>

#include "network/dormouse/parameters.h"
#include "ops/ops.h"

namespace dormouse::network {
namespace {

// Of one row times each of these matrices.
double products(std::initializer_list<const tensor::Parameter*> weights) {
  double flops = 0;
  for (const auto* w : weights) flops += 2.0 * static_cast<double>(w->value.size());
  return flops;
}

}  // namespace

std::vector<StageFlops> flops_per_position(const ModelConfig& c) {
  const Parameters p = declare_shapes(c);
  const auto depth = static_cast<double>(c.max_iter);
  std::vector<StageFlops> all;
  // Half of the controller reads h0, once.
  all.push_back({"", products({&p.controller}) * (1 + depth) / 2 + depth * products({&p.memory_dense})});
  if (c.use_kda) {
    const auto& a = p.attention;
    all.push_back({"attention", depth * products({&a.q, &a.k, &a.v, &a.gate, &a.decay_up, &a.decay_down, &a.beta, &a.out})});
    // In a chunk of C rows, per row and head: the state [hd,hd] read twice and written once, five products [hd,C] with the other rows.
    const auto hd = static_cast<double>(c.head_dim), chunk = static_cast<double>(ops::kKdaChunk);
    all.push_back({"recurrence", depth * static_cast<double>(c.n_heads) * 2 * hd * (3 * hd + 5 * chunk)});
  }
  if (c.use_engram) all.push_back({"memory", products({&p.engram.key, &p.engram.value})});
  double experts = 0;
  for (const auto& expert : p.experts) experts += products({&expert.up.u, &expert.up.v, &expert.down.u, &expert.down.v});
  all.push_back({"experts", depth * experts});
  all.push_back({"readout", depth * products({&p.readout.u, &p.readout.v})});
  all.push_back({"head", (depth + 1) * products({&p.head.u, &p.head.v})});
  return all;
}

}  // namespace dormouse::network
