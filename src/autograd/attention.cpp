// silu_head_norm, decay, kda, gated_head_norm.
#include "autograd/detail.h"

namespace dormouse::autograd {

using detail::grad_ptr;
using detail::ptr;
using detail::require;
using detail::result;
using detail::with_table;

Var silu_head_norm(Tape& tape, const Var& x, std::int64_t head_dim, double eps) {
  require(x.defined() && head_dim > 0 && x.value().cols() % head_dim == 0, "silu_head_norm", {&x.value()});
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  const ops::HeadNorm shape{.rows = y.size() / head_dim, .head_dim = head_dim, .eps = eps};
  Tensor inv = Tensor::empty({shape.rows}, x.dtype());
  with_table(tape, y.dtype(), [&]<class T>(const ops::OpTable<T>& t) { t.silu_head_norm(shape, ptr<T>(x), ptr<T>(y), ptr<T>(inv)); });
  return result(tape, y, x.wants_grad(), [&tape, x, y, inv, shape](const Tensor& dy) {
    with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      t.silu_head_norm_backward(shape, ptr<T>(x), ptr<T>(y), ptr<T>(inv), ptr<T>(dy), grad_ptr<T>(x.gradient()));
    });
  });
}

Var decay(Tape& tape, const Var& zeta, const Var& a_log, const Var& bias, double g_min) {
  const std::int64_t heads = a_log.value().size();
  require(zeta.defined() && a_log.defined() && bias.defined() && bias.value().size() == zeta.value().cols() && heads > 0 &&
              zeta.value().cols() % heads == 0 && a_log.dtype() == zeta.dtype() && bias.dtype() == zeta.dtype(),
          "decay", {&zeta.value(), &a_log.value(), &bias.value()});
  Tensor g = Tensor::empty(zeta.shape(), zeta.dtype());
  const ops::Decay shape{.rows = g.rows(), .heads = heads, .head_dim = g.cols() / heads, .g_min = g_min};
  with_table(tape, g.dtype(),
             [&]<class T>(const ops::OpTable<T>& t) { t.decay(shape, ptr<T>(zeta), ptr<T>(a_log), ptr<T>(bias), ptr<T>(g)); });
  return result(tape, g, detail::any_wants_grad({&zeta, &a_log, &bias}), [&tape, zeta, a_log, bias, g, shape](const Tensor& dg) {
    with_table(tape, dg.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      t.decay_backward(shape, ptr<T>(zeta), ptr<T>(a_log), ptr<T>(bias), ptr<T>(g), ptr<T>(dg), grad_ptr<T>(zeta.gradient()),
                       grad_ptr<T>(a_log.gradient()), grad_ptr<T>(bias.gradient()));
    });
  });
}

Var kda(Tape& tape, const ops::Kda& shape, const Var& q, const Var& k, const Var& v, const Var& g, const Var& beta, const Tensor& state0,
        Tensor* final_state) {
  const Shape state_shape{shape.batch, shape.heads, shape.head_dim, shape.head_dim};
  const Shape rows{shape.batch * shape.time, shape.heads * shape.head_dim};
  require(q.shape() == rows && k.shape() == rows && v.shape() == rows && g.shape() == rows &&
              beta.shape() == Shape{shape.batch * shape.time, shape.heads} && (!state0.defined() || state0.shape() == state_shape),
          "kda", {&q.value(), &k.value(), &v.value(), &g.value(), &beta.value(), &state0});
  const bool wants_grad = tape.recording() && detail::any_wants_grad({&q, &k, &v, &g, &beta});
  Tensor o = Tensor::empty(rows, q.dtype());
  const std::int64_t chunks = (shape.time + ops::kKdaChunk - 1) / ops::kKdaChunk;
  const Tensor chunk_states =
      wants_grad ? Tensor::empty({shape.batch * shape.heads, chunks, shape.head_dim, shape.head_dim}, q.dtype()) : Tensor();
  Tensor state;
  if (final_state != nullptr) state = Tensor::empty(state_shape, q.dtype());
  with_table(tape, o.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
    t.kda(shape, ptr<T>(q), ptr<T>(k), ptr<T>(v), ptr<T>(g), ptr<T>(beta), ptr<T>(state0), ptr<T>(o), ptr<T>(state), ptr<T>(chunk_states));
  });
  if (final_state != nullptr) *final_state = std::move(state);
  return result(tape, std::move(o), wants_grad, [&tape, q, k, v, g, beta, chunk_states, shape](const Tensor& d_o) {
    with_table(tape, d_o.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      t.kda_backward(shape, ptr<T>(q), ptr<T>(k), ptr<T>(v), ptr<T>(g), ptr<T>(beta), ptr<T>(chunk_states), ptr<T>(d_o), nullptr,
                     grad_ptr<T>(q.gradient()), grad_ptr<T>(k.gradient()), grad_ptr<T>(v.gradient()), grad_ptr<T>(g.gradient()),
                     grad_ptr<T>(beta.gradient()), nullptr);
    });
  });
}

Var gated_head_norm(Tape& tape, const Var& o, const Var& z, const Var& w, std::int64_t head_dim, double eps) {
  require(o.defined() && z.defined() && w.defined() && z.shape() == o.shape() && head_dim > 0 && w.value().size() == head_dim &&
              o.value().cols() % head_dim == 0 && z.dtype() == o.dtype() && w.dtype() == o.dtype(),
          "gated_head_norm", {&o.value(), &z.value(), &w.value()});
  Tensor y = Tensor::empty(o.shape(), o.dtype());
  const ops::GatedHeadNorm shape{.rows = y.size() / head_dim, .head_dim = head_dim, .eps = eps};
  Tensor inv = Tensor::empty({shape.rows}, o.dtype());
  with_table(tape, y.dtype(),
             [&]<class T>(const ops::OpTable<T>& t) { t.gated_head_norm(shape, ptr<T>(o), ptr<T>(z), ptr<T>(w), ptr<T>(y), ptr<T>(inv)); });
  return result(tape, std::move(y), detail::any_wants_grad({&o, &z, &w}), [&tape, o, z, w, inv, shape](const Tensor& dy) {
    with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      t.gated_head_norm_backward(shape, ptr<T>(o), ptr<T>(z), ptr<T>(w), ptr<T>(inv), ptr<T>(dy), grad_ptr<T>(o.gradient()),
                                 grad_ptr<T>(z.gradient()), grad_ptr<T>(w.gradient()));
    });
  });
}

}  // namespace dormouse::autograd
