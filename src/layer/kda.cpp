#include "layer/kda.h"

#include <cmath>
#include <vector>

namespace dormouse::layer {

using autograd::Tape;
using autograd::Var;

KdaParameters declare_kda(const std::string& name, const KdaShape& shape) {
  const std::int64_t d = shape.d;
  const std::int64_t hd = shape.head_dim;
  const std::int64_t width = shape.heads * hd;
  KdaParameters p;
  p.q = declare(name + ".q.weight", Role::attention_qk, Kind::dense, {d, width});
  p.k = declare(name + ".k.weight", Role::attention_qk, Kind::dense, {d, width});
  p.q.heads = p.k.heads = shape.heads;
  p.v = declare(name + ".v.weight", Role::attention, Kind::dense, {d, width});
  p.decay_up = declare(name + ".decay_up.weight", Role::attention, Kind::dense, {d, hd});
  p.decay_down = declare(name + ".decay_down.weight", Role::attention, Kind::dense, {hd, width});
  p.decay_bias = declare(name + ".decay_bias", Role::attention, Kind::bias, {width});
  p.a_log = declare(name + ".a_log", Role::attention, Kind::bias, {shape.heads});
  p.beta = declare(name + ".beta.weight", Role::attention_beta, Kind::dense, {d, shape.heads});
  p.gate = declare(name + ".gate.weight", Role::attention, Kind::dense, {d, width});
  p.norm = declare(name + ".norm.weight", Role::norm, Kind::gain, {hd});
  p.out = declare(name + ".out.weight", Role::attention, Kind::dense, {width, d});
  return p;
}

void draw_kda(KdaParameters& p, const KdaShape& shape, const std::string& decay_init, std::int64_t max_seq_len, std::uint64_t seed) {
  constexpr double kDeviation = 0.02;
  for (Parameter* w : {&p.q, &p.k, &p.v, &p.decay_up, &p.decay_down, &p.beta, &p.gate, &p.out}) draw_normal(*w, seed, kDeviation);
  draw_constant(p.norm, 1.0F);
  if (decay_init == "short") {
    draw_constant(p.a_log, -3.0F);
    draw_constant(p.decay_bias, 1.0F);
    return;
  }
  draw_constant(p.a_log, 0.0F);
  float* bias = p.decay_bias.value.data<float>();
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    for (std::int64_t j = 0; j < shape.head_dim; ++j) {
      const double tau = std::pow(static_cast<double>(max_seq_len), (static_cast<double>(j) + 0.5) / static_cast<double>(shape.head_dim));
      const double share = 1.0 / (-kKdaDecayFloor * tau);  // g_min * sigma(bias) = -1/tau
      bias[h * shape.head_dim + j] = static_cast<float>(std::log(share / (1.0 - share)));
    }
  }
}

void for_each(KdaParameters& p, const std::function<void(Parameter&)>& visit) {
  for (Parameter* w : {&p.q, &p.k, &p.v, &p.decay_up, &p.decay_down, &p.decay_bias, &p.a_log, &p.beta, &p.gate, &p.norm, &p.out}) visit(*w);
}

Var kda(Tape& tape, KdaParameters& p, const KdaShape& shape, std::int64_t batch, std::int64_t time, const Var& z,
        const tensor::Tensor& state0, tensor::Tensor* final_state) {
  const std::int64_t hd = shape.head_dim;
  const auto project = [&](Parameter& w) { return matmul(tape, z, tape.parameter(w)); };
  const Var q = silu_head_norm(tape, project(p.q), hd, kKdaUnitEps);
  const Var k = silu_head_norm(tape, project(p.k), hd, kKdaUnitEps);
  const Var v = silu(tape, project(p.v));
  const Var zeta = matmul(tape, project(p.decay_up), tape.parameter(p.decay_down));
  const Var g = decay(tape, zeta, tape.parameter(p.a_log), tape.parameter(p.decay_bias), kKdaDecayFloor);
  const Var beta = sigmoid(tape, project(p.beta));
  const ops::Kda size{.batch = batch, .time = time, .heads = shape.heads, .head_dim = hd};
  const Var o = autograd::kda(tape, size, q, k, v, g, beta, state0, final_state);
  const Var gated = gated_head_norm(tape, o, project(p.gate), tape.parameter(p.norm), hd, kKdaOutputNormEps);
  return matmul(tape, gated, tape.parameter(p.out));
}

void kda_step(const ops::OpTable<float>& table, const KdaParameters& p, const KdaShape& shape, std::int64_t batch, const float* z,
              float* state, float* y) {
  const std::int64_t d = shape.d;
  const std::int64_t hd = shape.head_dim;
  const std::int64_t width = shape.heads * hd;
  const auto n = static_cast<std::size_t>(batch * width);
  std::vector<float> q(n), k(n), v(n), g(n), raw(n), o(n), inv(static_cast<std::size_t>(batch * shape.heads)), beta(inv.size()),
      low(static_cast<std::size_t>(batch * hd));
  const auto project = [&](const Parameter& w, const float* x, std::int64_t in, float* out) {
    const std::int64_t columns = w.value.dim(1);
    table.gemm({.m = batch, .n = columns, .k = in, .lda = in, .ldb = columns, .ldc = columns}, x, w.value.data<float>(), out);
  };
  const ops::HeadNorm unit{.rows = batch * shape.heads, .head_dim = hd, .eps = kKdaUnitEps};
  project(p.q, z, d, raw.data());
  table.silu_head_norm(unit, raw.data(), q.data(), inv.data());
  project(p.k, z, d, raw.data());
  table.silu_head_norm(unit, raw.data(), k.data(), inv.data());
  project(p.v, z, d, raw.data());
  table.silu(batch * width, raw.data(), v.data());
  project(p.decay_up, z, d, low.data());
  project(p.decay_down, low.data(), hd, raw.data());
  table.decay({.rows = batch, .heads = shape.heads, .head_dim = hd, .g_min = kKdaDecayFloor}, raw.data(), p.a_log.value.data<float>(),
              p.decay_bias.value.data<float>(), g.data());
  project(p.beta, z, d, inv.data());
  table.sigmoid(batch * shape.heads, inv.data(), beta.data());
  table.kda_step({.batch = batch, .time = 1, .heads = shape.heads, .head_dim = hd}, q.data(), k.data(), v.data(), g.data(), beta.data(),
                 state, o.data());
  project(p.gate, z, d, raw.data());
  table.gated_head_norm({.rows = batch * shape.heads, .head_dim = hd, .eps = kKdaOutputNormEps}, o.data(), raw.data(),
                        p.norm.value.data<float>(), v.data(), inv.data());
  project(p.out, v.data(), width, y);
}

}  // namespace dormouse::layer
