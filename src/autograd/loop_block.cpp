// The glue of the loop body: gates, engram_read, residual.
#include "autograd/detail.h"

namespace dormouse::autograd {

using detail::grad_ptr;
using detail::ptr;
using detail::require;
using detail::result;
using detail::with_table;

Var gates(Tape& tape, const Var& c, std::int64_t experts, double lam_max, bool smooth) {
  require(c.defined() && experts >= 0 && c.value().cols() >= 3 + experts, "gates", {&c.value()});
  const ops::Gates shape{.rows = c.value().rows(), .experts = experts, .width = c.value().cols(), .lam_max = lam_max, .smooth = smooth};
  Tensor y = Tensor::empty({shape.rows, 3 + experts}, c.dtype());
  with_table(tape, y.dtype(), [&]<class T>(const ops::OpTable<T>& t) { t.gates(shape, ptr<T>(c), ptr<T>(y)); });
  return result(tape, y, c.wants_grad(), [&tape, c, y, shape](const Tensor& dy) {
    with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      t.gates_backward(shape, ptr<T>(c), ptr<T>(y), ptr<T>(dy), grad_ptr<T>(c.gradient()));
    });
  });
}

Var engram_read(Tape& tape, const Var& key, const Var& val, const Var& u, double eps) {
  require(key.defined() && key.shape() == val.shape() && key.shape() == u.shape() && key.dtype() == val.dtype() && key.dtype() == u.dtype(),
          "engram_read", {&key.value(), &val.value(), &u.value()});
  Tensor read = Tensor::empty(key.shape(), key.dtype());
  const ops::EngramRead shape{.rows = read.rows(), .d = read.cols(), .eps = eps};
  Tensor saved = Tensor::empty({shape.rows, 4}, key.dtype());
  with_table(tape, read.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
    t.engram_read(shape, ptr<T>(key), ptr<T>(val), ptr<T>(u), ptr<T>(read), ptr<T>(saved));
  });
  return result(tape, std::move(read), detail::any_wants_grad({&key, &val, &u}), [&tape, key, val, u, saved, shape](const Tensor& dread) {
    with_table(tape, dread.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      t.engram_read_backward(shape, ptr<T>(key), ptr<T>(val), ptr<T>(u), ptr<T>(saved), ptr<T>(dread), grad_ptr<T>(key.gradient()),
                             grad_ptr<T>(val.gradient()), grad_ptr<T>(u.gradient()));
    });
  });
}

Var residual(Tape& tape, const Var& u, const Var& rho, const Var& gates, const Var& attention, const Var& memory, const Var& dense,
             const Var& ffn) {
  const auto same = [&u](const Var& v) { return v.shape() == u.shape() && v.dtype() == u.dtype(); };
  require(u.defined() && rho.value().size() == 1 && rho.dtype() == u.dtype() && gates.value().rows() == u.value().rows() &&
              gates.value().cols() >= 3 && gates.dtype() == u.dtype() && (!attention.defined() || same(attention)) &&
              (!memory.defined() || same(memory)) && same(dense) && same(ffn),
          "residual", {&u.value(), &rho.value(), &gates.value(), &attention.value(), &memory.value(), &dense.value(), &ffn.value()});
  Tensor h = Tensor::empty(u.shape(), u.dtype());
  const ops::Residual shape{.rows = h.rows(), .d = h.cols(), .gate_width = gates.value().cols()};
  with_table(tape, h.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
    t.residual(shape, ptr<T>(u), ptr<T>(rho), ptr<T>(gates), ptr<T>(attention), ptr<T>(memory), ptr<T>(dense), ptr<T>(ffn), ptr<T>(h));
  });
  return result(tape, std::move(h), detail::any_wants_grad({&u, &rho, &gates, &attention, &memory, &dense, &ffn}),
                [&tape, du = u.gradient(), rho, gates, attention, memory, dense, ffn, shape](const Tensor& dh) {
                  with_table(tape, dh.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
                    t.residual_backward(shape, ptr<T>(rho), ptr<T>(gates), ptr<T>(attention), ptr<T>(memory), ptr<T>(dense), ptr<T>(ffn),
                                        ptr<T>(dh), nullptr, grad_ptr<T>(rho.gradient()), grad_ptr<T>(gates.gradient()),
                                        grad_ptr<T>(attention.gradient()), grad_ptr<T>(memory.gradient()), grad_ptr<T>(dense.gradient()),
                                        grad_ptr<T>(ffn.gradient()));
                    detail::pass_through(t, dh, du);
                  });
                });
}

}  // namespace dormouse::autograd
