#include "layer/spectral.h"

#include <algorithm>

namespace dormouse::layer {

using autograd::Precision;
using autograd::Tape;
using autograd::Var;

SpectralParameters declare_spectral(const std::string& name, Role role, std::int64_t in, std::int64_t out, std::int64_t rank) {
  const std::int64_t k = std::max<std::int64_t>(1, std::min({rank, in, out}));
  return {declare(name + ".u", role, Kind::factor_in, {in, k}), declare(name + ".s", role, Kind::scale, {k}),
          declare(name + ".v", role, Kind::factor_out, {out, k})};
}

void draw_spectral(SpectralParameters& p, std::uint64_t seed, double scale) {
  draw_orthonormal(p.u, seed);
  draw_constant(p.s, static_cast<float>(scale));
  draw_orthonormal(p.v, seed);
}

void for_each(SpectralParameters& p, const std::function<void(Parameter&)>& visit) {
  visit(p.u);
  visit(p.s);
  visit(p.v);
}

Var spectral_middle(Tape& tape, SpectralParameters& p, const Var& x, Precision precision, const Var& gates, std::int64_t expert) {
  return scale_columns(tape, matmul(tape, x, tape.parameter(p.u), precision), tape.parameter(p.s), gates, expert);
}

Var spectral(Tape& tape, SpectralParameters& p, const Var& x, Precision precision) {
  return matmul_transposed(tape, spectral_middle(tape, p, x, precision), tape.parameter(p.v), precision);
}

SpectralWeights read_spectral(const WeightSource& source, const std::string& name) {
  return {matrix(source, name + ".u"), vector(source, name + ".s"), matrix_transposed(source, name + ".v")};
}

void spectral_step(const ops::OpTable<float>& table, const SpectralWeights& w, std::int64_t rows, const float* x, Scratch& scratch,
                   float* y) {
  float* middle = scratch.take(rows * w.rank());
  table.products(rows, {{{&w.u, x, middle}}}, ops::Sweep::forward);
  table.scale_columns({.rows = rows, .k = w.rank(), .p_stride = 0}, middle, w.s.data(), nullptr, middle);
  table.products(rows, {{{&w.v, middle, y}}}, ops::Sweep::forward);
}

}  // namespace dormouse::layer
