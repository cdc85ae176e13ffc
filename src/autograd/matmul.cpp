// GEMM ops. First writes into a gradient go out with beta 0, so no gradient buffer is zeroed for them.
#include <vector>

#include "autograd/detail.h"

namespace dormouse::autograd {
namespace {

using detail::grad_ptr;
using detail::ptr;
using detail::require;
using detail::result;
using detail::with_table;

// c (+)= op(a) op(b) on flattened [rows, cols] views, leading dimensions taken from the tensors.
void gemm(const Tape& tape, ops::Compute compute, bool transpose_a, const Tensor& a, bool transpose_b, const Tensor& b, bool accumulate,
          const Tensor& c) {
  ops::Gemm g;
  g.m = c.rows();
  g.n = c.cols();
  g.k = transpose_a ? a.rows() : a.cols();
  g.lda = a.ld();
  g.ldb = b.ld();
  g.ldc = c.ld();
  g.transpose_a = transpose_a;
  g.transpose_b = transpose_b;
  g.accumulate = accumulate;
  g.compute = compute;
  with_table(tape, c.dtype(), [&]<class T>(const ops::OpTable<T>& table) { table.gemm(g, a.data<T>(), b.data<T>(), c.data<T>()); });
}

void gemm_into(const Tape& tape, ops::Compute compute, bool transpose_a, const Tensor& a, bool transpose_b, const Tensor& b,
               const Gradient& gradient) {
  if (!gradient.wanted()) return;
  const auto [grad, overwrite] = gradient.for_gemm();
  gemm(tape, compute, transpose_a, a, transpose_b, b, !overwrite, grad);
}

ops::Compute compute_of(const Tape& tape, Precision precision) { return precision == Precision::f32 ? ops::Compute::f32 : tape.compute(); }

bool fits(const Var& x, const Var& w, bool transposed) {
  return x.defined() && w.defined() && w.value().rank() == 2 && x.value().rank() >= 1 && x.dtype() == w.dtype() &&
         x.value().cols() == w.shape()[transposed ? 1 : 0];
}

Shape output_shape(const Tensor& x, std::int64_t out) { return {x.rows(), out}; }

Var product(Tape& tape, const Var& x, const Var& w, bool transposed, Precision precision) {
  require(fits(x, w, transposed), transposed ? "matmul_transposed" : "matmul", {&x.value(), &w.value()});
  const ops::Compute compute = compute_of(tape, precision);
  Tensor y = Tensor::empty(output_shape(x.value(), w.shape()[transposed ? 0 : 1]), x.dtype());
  gemm(tape, compute, false, x.value(), transposed, w.value(), false, y);
  return result(tape, std::move(y), detail::any_wants_grad({&x, &w}), [&tape, x, w, transposed, compute](const Tensor& dy) {
    gemm_into(tape, compute, false, dy, !transposed, w.value(), x.gradient());
    if (transposed) {
      gemm_into(tape, compute, true, dy, false, x.value(), w.gradient());
    } else {
      gemm_into(tape, compute, true, x.value(), false, dy, w.gradient());
    }
  });
}

}  // namespace

Var matmul(Tape& tape, const Var& x, const Var& w, Precision precision) { return product(tape, x, w, false, precision); }

Var matmul_transposed(Tape& tape, const Var& x, const Var& v, Precision precision) { return product(tape, x, v, true, precision); }

Var matmul_transposed_sum(Tape& tape, std::span<const Var> xs, std::span<const Var> vs, Precision precision) {
  if (xs.empty() || xs.size() != vs.size()) {
    throw base::Error("matmul_transposed_sum: " + std::to_string(xs.size()) + " inputs and " + std::to_string(vs.size()) + " factors");
  }
  const ops::Compute compute = compute_of(tape, precision);
  Tensor y = Tensor::empty(output_shape(xs[0].value(), vs[0].shape()[0]), xs[0].dtype());
  bool wants_grad = false;
  for (std::size_t e = 0; e < xs.size(); ++e) {
    require(fits(xs[e], vs[e], true) && xs[e].value().rows() == y.rows() && vs[e].shape()[0] == y.cols(), "matmul_transposed_sum",
            {&xs[e].value(), &vs[e].value(), &y});
    gemm(tape, compute, false, xs[e].value(), true, vs[e].value(), e > 0, y);
    wants_grad = wants_grad || xs[e].wants_grad() || vs[e].wants_grad();
  }
  return result(tape, std::move(y), wants_grad,
                [&tape, x = std::vector<Var>(xs.begin(), xs.end()), v = std::vector<Var>(vs.begin(), vs.end()), compute](const Tensor& dy) {
                  for (std::size_t e = 0; e < x.size(); ++e) {
                    gemm_into(tape, compute, false, dy, false, v[e].value(), x[e].gradient());
                    gemm_into(tape, compute, true, dy, false, x[e].value(), v[e].gradient());
                  }
                });
}

Var hidden(Tape& tape, const Var& x, const Var& v, const Var& u, Precision precision) {
  require(fits(x, v, true) && u.defined() && u.value().rank() == 2 && u.shape()[0] == v.shape()[0] && u.dtype() == x.dtype(), "hidden",
          {&x.value(), &v.value(), &u.value()});
  const ops::Hidden shape{
      .rows = x.value().rows(), .k = x.value().cols(), .f = v.shape()[0], .r = u.shape()[1], .compute = compute_of(tape, precision)};
  Tensor y = Tensor::empty({shape.rows, shape.r}, x.dtype());
  with_table(tape, y.dtype(), [&]<class T>(const ops::OpTable<T>& t) { t.hidden(shape, ptr<T>(x), ptr<T>(v), ptr<T>(u), ptr<T>(y)); });
  return result(tape, std::move(y), detail::any_wants_grad({&x, &v, &u}), [&tape, x, v, u, shape](const Tensor& dy) {
    with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      t.hidden_backward(shape, ptr<T>(x), ptr<T>(v), ptr<T>(u), ptr<T>(dy), grad_ptr<T>(x.gradient()), grad_ptr<T>(v.gradient()),
                        grad_ptr<T>(u.gradient()));
    });
  });
}

Var matmul_add(Tape& tape, const Var& base, const Var& x, const Var& w, Precision precision) {
  require(fits(x, w, false) && base.defined() && base.value().rows() == x.value().rows() && base.value().cols() == w.shape()[1] &&
              base.dtype() == x.dtype(),
          "matmul_add", {&base.value(), &x.value(), &w.value()});
  const ops::Compute compute = compute_of(tape, precision);
  Tensor y = base.value().clone();
  gemm(tape, compute, false, x.value(), false, w.value(), true, y);
  return result(tape, std::move(y), detail::any_wants_grad({&base, &x, &w}),
                [&tape, dbase = base.gradient(), x, w, compute](const Tensor& dy) {
                  gemm_into(tape, compute, false, dy, true, w.value(), x.gradient());
                  gemm_into(tape, compute, true, x.value(), false, dy, w.gradient());
                  with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>& table) { detail::pass_through(table, dy, dbase); });
                });
}

Var slice_rows(Tape& /*tape*/, const Var& x, std::int64_t begin, std::int64_t count) {
  require(x.defined() && x.value().rank() == 2, "slice_rows", {&x.value()});
  return x.rows_slice(begin, count);
}

}  // namespace dormouse::autograd
