#include "layer/kda.h"

#include <cmath>

#include "base/threads.h"

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
  const autograd::Stage stage(tape, "attention");
  const std::int64_t hd = shape.head_dim;
  const auto project = [&](Parameter& w) { return matmul(tape, z, tape.parameter(w)); };
  const Var q = silu_head_norm(tape, project(p.q), hd, kKdaUnitEps);
  const Var k = silu_head_norm(tape, project(p.k), hd, kKdaUnitEps);
  const Var v = silu(tape, project(p.v));
  const Var zeta = matmul(tape, project(p.decay_up), tape.parameter(p.decay_down));
  const Var g = decay(tape, zeta, tape.parameter(p.a_log), tape.parameter(p.decay_bias), kKdaDecayFloor);
  const Var beta = sigmoid(tape, project(p.beta));
  const ops::Kda size{.batch = batch, .time = time, .heads = shape.heads, .head_dim = hd};
  const auto recur = [&] {
    const autograd::Stage recurrence(tape, "recurrence");
    return autograd::kda(tape, size, q, k, v, g, beta, state0, final_state);
  };
  const Var o = recur();
  const Var gated = gated_head_norm(tape, o, project(p.gate), tape.parameter(p.norm), hd, kKdaOutputNormEps);
  return matmul(tape, gated, tape.parameter(p.out));
}

KdaWeights read_kda(const WeightSource& source, const std::string& name) {
  const auto weight = [&](const char* part) { return matrix(source, name + "." + part + ".weight"); };
  return {.q = weight("q"),
          .k = weight("k"),
          .v = weight("v"),
          .gate = weight("gate"),
          .decay_up = weight("decay_up"),
          .decay_down = weight("decay_down"),
          .beta = weight("beta"),
          .out = weight("out"),
          .decay_bias = vector(source, name + ".decay_bias"),
          .a_log = vector(source, name + ".a_log"),
          .norm = vector(source, name + ".norm.weight")};
}

void kda_step(const ops::OpTable<float>& table, const KdaWeights& w, const KdaShape& shape, std::int64_t batch, std::int64_t time,
              const float* z, ops::Sweep sweep, float* state, Scratch& scratch, float* y) {
  const std::int64_t hd = shape.head_dim, rows = batch * time, units = rows * shape.heads, n = units * hd;
  float *raw_q = scratch.take(n), *raw_k = scratch.take(n), *v = scratch.take(n), *gate = scratch.take(n), *low = scratch.take(rows * hd),
        *beta = scratch.take(units), *zeta = scratch.take(n), *q = scratch.take(n), *k = scratch.take(n), *g = scratch.take(n),
        *o = scratch.take(n), *gated = scratch.take(n), *inv = scratch.take(units);
  table.products(rows, {{{&w.q, z, raw_q}, {&w.k, z, raw_k}, {&w.v, z, v}, {&w.gate, z, gate}, {&w.decay_up, z, low}, {&w.beta, z, beta}}},
                 sweep);
  table.products(rows, {{{&w.decay_down, low, zeta}}}, sweep);
  // Texts do not meet: from the projections to the gated outputs each is one piece. Where there are fewer than threads, heads are.
  const auto recur = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t row = begin * time, unit = row * shape.heads, x = unit * hd, some = (end - begin) * time, count = some * shape.heads;
    const ops::HeadNorm norm{.rows = count, .head_dim = hd, .eps = kKdaUnitEps};
    table.silu_head_norm(norm, raw_q + x, q + x, inv + unit);
    table.silu_head_norm(norm, raw_k + x, k + x, inv + unit);
    table.silu(count * hd, v + x, v + x);
    table.decay({.rows = some, .heads = shape.heads, .head_dim = hd, .g_min = kKdaDecayFloor}, zeta + x, w.a_log.data(),
                w.decay_bias.data(), g + x);
    table.sigmoid(count, beta + unit, beta + unit);
    table.kda_step({.batch = end - begin, .time = time, .heads = shape.heads, .head_dim = hd}, q + x, k + x, v + x, g + x, beta + unit,
                   state + begin * shape.heads * hd * hd, o + x);
    table.gated_head_norm({.rows = count, .head_dim = hd, .eps = kKdaOutputNormEps}, o + x, gate + x, w.norm.data(), gated + x, inv + unit);
  };
  if (batch < base::threads()) {
    recur(0, batch);
  } else {
    table.split(batch, 8 * n, recur);
  }
  table.products(rows, {{{&w.out, gated, y}}}, sweep);
}

}  // namespace dormouse::layer
