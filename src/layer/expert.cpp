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

ExpertWeights read_expert(const WeightSource& source, const std::string& name) {
  return {read_spectral(source, name + ".up"), read_spectral(source, name + ".down")};
}

void experts_step(const ops::OpTable<float>& table, const std::vector<ExpertWeights>& experts, std::int64_t rows, const float* z,
                  const float* gates, std::int64_t gate_width, Scratch& scratch, float* y) {
  const ExpertWeights& one = experts.front();
  const std::int64_t d = one.up.u.k(), f = one.up.v.n(), up_rank = one.up.rank(), down_rank = one.down.rank();
  const auto count = static_cast<std::int64_t>(experts.size());
  float* middle = scratch.take(count * rows * up_rank);
  float* hidden = scratch.take(count * rows * f);
  float* read = scratch.take(count * rows * down_rank);
  float* written = scratch.take((count - 1) * rows * d);
  const auto product = [&](auto weight, const float* x, std::int64_t in, float* to, std::int64_t out) {
    std::vector<ops::Product<float>> list;
    for (std::int64_t e = 0; e < count; ++e)
      list.push_back({&weight(experts[static_cast<std::size_t>(e)]), x + e * rows * in, to + e * rows * out});
    table.products(rows, list, ops::Sweep::forward);
  };
  std::vector<ops::Product<float>> reads, writes;
  for (std::int64_t e = 0; e < count; ++e) {
    const ExpertWeights& w = experts[static_cast<std::size_t>(e)];
    reads.push_back({&w.up.u, z, middle + e * rows * up_rank});
    writes.push_back({&w.down.v, read + e * rows * down_rank, e == 0 ? y : written + (e - 1) * rows * d});
  }
  table.products(rows, reads, ops::Sweep::forward);
  for (std::int64_t e = 0; e < count; ++e) {
    float* m = middle + e * rows * up_rank;
    table.scale_columns({.rows = rows, .k = up_rank, .p_stride = 0}, m, experts[static_cast<std::size_t>(e)].up.s.data(), nullptr, m);
  }
  product([](const ExpertWeights& w) -> const ops::NarrowMatrix& { return w.up.v; }, middle, up_rank, hidden, f);
  table.silu(count * rows * f, hidden, hidden);
  product([](const ExpertWeights& w) -> const ops::NarrowMatrix& { return w.down.u; }, hidden, f, read, down_rank);
  for (std::int64_t e = 0; e < count; ++e) {
    float* r = read + e * rows * down_rank;
    table.scale_columns({.rows = rows, .k = down_rank, .p_stride = gate_width}, r, experts[static_cast<std::size_t>(e)].down.s.data(),
                        gates + 3 + e, r);
  }
  table.products(rows, writes, ops::Sweep::forward);
  for (std::int64_t e = 1; e < count; ++e) table.axpy(rows * d, 1.0F, written + (e - 1) * rows * d, y);
}

}  // namespace dormouse::layer
