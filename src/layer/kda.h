// KDA: gated delta attention (recurrence and chunk form: ops/ops.h).
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

struct KdaShape {
  std::int64_t d = 0, heads = 0, head_dim = 0;
};

struct KdaParameters {
  Parameter q, k, v;                           // [d, H*hd]
  Parameter decay_up, decay_down, decay_bias;  // [d,hd], [hd,H*hd], [H*hd]
  Parameter a_log;                             // [H]
  Parameter beta;                              // [d,H]
  Parameter gate;                              // [d, H*hd]
  Parameter norm;                              // [hd]
  Parameter out;                               // [H*hd, d]
};

inline constexpr double kKdaDecayFloor = -5;  // g_min
inline constexpr double kKdaUnitEps = 1e-6;   // under the root of the q, k unit norm
inline constexpr double kKdaOutputNormEps = 1e-5;

KdaParameters declare_kda(const std::string& name, const KdaShape& shape);
// decay_init "spread": channel j of every head has time constant max_seq_len^((j+.5)/hd); "short": a_log = -3, bias = +1.
void draw_kda(KdaParameters& p, const KdaShape& shape, const std::string& decay_init, std::int64_t max_seq_len, std::uint64_t seed);
void for_each(KdaParameters& p, const std::function<void(Parameter&)>& visit);

// Training form. z [b*t,d] -> [b*t,d]. state0 [b,H,hd,hd] or undefined (zeros); final_state receives the state after the last byte.
autograd::Var kda(autograd::Tape& tape, KdaParameters& p, const KdaShape& shape, std::int64_t batch, std::int64_t time,
                  const autograd::Var& z, const tensor::Tensor& state0 = {}, tensor::Tensor* final_state = nullptr);

struct KdaWeights {
  ops::NarrowMatrix q, k, v, gate;         // [d, H*hd]
  ops::NarrowMatrix decay_up, decay_down;  // [d,hd], [hd,H*hd]
  ops::NarrowMatrix beta, out;             // [d,H], [H*hd,d]
  std::vector<float> decay_bias, a_log, norm;
};
KdaWeights read_kda(const WeightSource& source, const std::string& name);
template <class Visit>
void for_each_matrix(const KdaWeights& w, const Visit& visit) {
  for (const ops::NarrowMatrix* m : {&w.q, &w.k, &w.v, &w.gate, &w.decay_up, &w.decay_down, &w.beta, &w.out}) visit(*m);
}

// Step form: the next `time` bytes of each of `batch` sequences. z [b*t,d] -> y [b*t,d]; state [b,H,hd,hd] updated in place.
void kda_step(const ops::OpTable<float>& table, const KdaWeights& w, const KdaShape& shape, std::int64_t batch, std::int64_t time,
              const float* z, ops::Sweep sweep, float* state, Scratch& scratch, float* y);

}  // namespace dormouse::layer
