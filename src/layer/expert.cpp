#include "layer/expert.h"

#include <cmath>

namespace dormouse::layer {

using autograd::Tape;
using autograd::Var;

ExpertParameters declare_expert(const std::string& name, std::int64_t d, std::int64_t f, std::int64_t rank) {
  return {declare_spectral(name + ".up", Role::expert, d, f, rank), declare_spectral(name + ".down", Role::expert, f, d, rank)};
}

void draw_expert(ExpertParameters& p, const std::string& scale_init, std::uint64_t seed) {
  for (SpectralParameters* part : {&p.up, &p.down}) {
    const auto out = static_cast<double>(part->v.value.dim(0));
    const auto k = static_cast<double>(part->v.value.dim(1));
    draw_spectral(*part, seed, scale_init == "unit" ? std::sqrt(out / k) : 1.0);
  }
}

void for_each(ExpertParameters& p, const std::function<void(Parameter&)>& visit) {
  for_each(p.up, visit);
  for_each(p.down, visit);
}

Var experts(Tape& tape, std::vector<ExpertParameters>& experts, const Var& z, const Var& gates) {
  std::vector<Var> middles;
  std::vector<Var> writes;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    auto& [up, down] = experts[e];
    const Var middle = spectral_middle(tape, up, z);
    const Var read = hidden(tape, middle, tape.parameter(up.v), tape.parameter(down.u));
    middles.push_back(scale_columns(tape, read, tape.parameter(down.s), gates, static_cast<std::int64_t>(e)));
    writes.push_back(tape.parameter(down.v));
  }
  return matmul_transposed_sum(tape, middles, writes);
}

void experts_step(const ops::OpTable<float>& table, const std::vector<ExpertParameters>& experts, std::int64_t batch, const float* z,
                  const float* gates, std::int64_t gate_width, float* y) {
  const std::int64_t f = experts.front().up.v.value.dim(0);
  std::vector<float> hidden(static_cast<std::size_t>(batch * f));
  std::vector<float> middle(static_cast<std::size_t>(batch * experts.front().up.u.value.dim(1)));
  for (std::size_t e = 0; e < experts.size(); ++e) {
    spectral_step(table, experts[e].up, batch, z, nullptr, 0, false, middle.data(), hidden.data());
    table.silu(batch * f, hidden.data(), hidden.data());
    spectral_step(table, experts[e].down, batch, hidden.data(), gates + 3 + e, gate_width, e > 0, middle.data(), y);
  }
}

}  // namespace dormouse::layer
