// Spectral linear (TSCT): y = ((x U) * s) V^T with orthonormal U [in,k], V [out,k] and scales s [k].
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "layer/init.h"
#include "layer/scratch.h"
#include "layer/weights.h"

namespace dormouse::layer {

struct SpectralParameters {
  Parameter u, s, v;
};

// k = max(1, min(rank, in, out)); tensors "<name>.u", ".s", ".v".
SpectralParameters declare_spectral(const std::string& name, Role role, std::int64_t in, std::int64_t out, std::int64_t rank);
// scale: the initial s.
void draw_spectral(SpectralParameters& p, std::uint64_t seed, double scale = 1);
void for_each(SpectralParameters& p, const std::function<void(Parameter&)>& visit);

// x [N,in] -> (x U) * s [N,k], the middle of the product; times gates column 3+expert when gates is defined.
autograd::Var spectral_middle(autograd::Tape& tape, SpectralParameters& p, const autograd::Var& x,
                              autograd::Precision precision = autograd::Precision::tape, const autograd::Var& gates = {},
                              std::int64_t expert = 0);
// x [N,in] -> [N,out]
autograd::Var spectral(autograd::Tape& tape, SpectralParameters& p, const autograd::Var& x,
                       autograd::Precision precision = autograd::Precision::tape);

struct SpectralWeights {
  ops::NarrowMatrix u;   // [in,k]
  std::vector<float> s;  // [k]
  ops::NarrowMatrix v;   // [k,out]
  std::int64_t rank() const { return u.n(); }
};
SpectralWeights read_spectral(const WeightSource& source, const std::string& name);
template <class Visit>
void for_each_matrix(const SpectralWeights& w, const Visit& visit) {
  visit(w.u);
  visit(w.v);
}

// Step form: x [rows,in] -> y [rows,out].
void spectral_step(const ops::OpTable<float>& table, const SpectralWeights& w, std::int64_t rows, const float* x, Scratch& scratch,
                   float* y);

}  // namespace dormouse::layer
