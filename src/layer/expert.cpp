#include "layer/expert.h"

#include <algorithm>
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
    const bool silent = scale_init == "silent" && part == &p.down;
    draw_spectral(*part, seed, silent ? 0.0 : scale_init == "one" ? 1.0 : std::sqrt(out / k));
  }
}

void for_each(ExpertParameters& p, const std::function<void(Parameter&)>& visit) {
  for_each(p.up, visit);
  for_each(p.down, visit);
}

Var experts(Tape& tape, std::vector<ExpertParameters>& experts, const Var& z, const Var& gates) {
  const autograd::Stage stage(tape, "experts");
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
  const auto buffer = [&](std::int64_t columns) { return scratch.take(count * rows * columns); };
  float *middle = buffer(up_rank), *hidden = buffer(f), *read = buffer(down_rank), *written = buffer(d);
  using Part = SpectralWeights ExpertWeights::*;
  // Expert e: to[e] = x[e] W_e; every expert the same x when x_columns is 0.
  const auto product = [&](Part part, ops::NarrowMatrix SpectralWeights::*factor, const float* x, std::int64_t x_columns, float* to,
                           std::int64_t columns) {
    std::vector<ops::Product<float>> list;
    for (std::int64_t e = 0; e < count; ++e)
      list.push_back({&(experts[static_cast<std::size_t>(e)].*part.*factor), x + e * rows * x_columns, to + e * rows * columns});
    table.products(rows, list, ops::Sweep::forward);
  };
  // Times the scales s, and where there are gates the share of the expert.
  const auto scale = [&](Part part, float* x, std::int64_t columns, const float* share) {
    for (std::int64_t e = 0; e < count; ++e) {
      float* of_expert = x + e * rows * columns;
      table.scale_columns({.rows = rows, .k = columns, .p_stride = gate_width}, of_expert,
                          (experts[static_cast<std::size_t>(e)].*part).s.data(), share == nullptr ? nullptr : share + e, of_expert);
    }
  };
  product(&ExpertWeights::up, &SpectralWeights::u, z, 0, middle, up_rank);
  scale(&ExpertWeights::up, middle, up_rank, nullptr);
  product(&ExpertWeights::up, &SpectralWeights::v, middle, up_rank, hidden, f);
  table.silu(count * rows * f, hidden, hidden);
  product(&ExpertWeights::down, &SpectralWeights::u, hidden, f, read, down_rank);
  scale(&ExpertWeights::down, read, down_rank, gates + 3);
  product(&ExpertWeights::down, &SpectralWeights::v, read, down_rank, written, d);
  table.split(rows, count * rows * d, [&](std::int64_t begin, std::int64_t end) {
    std::copy(written + begin * d, written + end * d, y + begin * d);
    for (std::int64_t e = 1; e < count; ++e) table.axpy((end - begin) * d, 1.0F, written + (e * rows + begin) * d, y + begin * d);
  });
}

}  // namespace dormouse::layer
