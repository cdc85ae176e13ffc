// gather, add_row, rms_norm, silu, sigmoid, scale_columns.
#include "autograd/detail.h"

namespace dormouse::autograd {

using detail::grad_ptr;
using detail::pass_through;
using detail::ptr;
using detail::require;
using detail::result;
using detail::with_table;

Var gather(Tape& tape, const Tensor& index_u32, const Var& table) {
  require(table.defined() && table.value().rank() == 2 && index_u32.dtype() == Dtype::u32, "gather", {&index_u32, &table.value()});
  const std::int64_t rows = index_u32.size();
  const std::int64_t d = table.value().cols();
  const std::int64_t per_row = index_u32.rank() == 2 ? index_u32.cols() : 1;
  Tensor y = Tensor::empty({index_u32.dim(0), per_row * d}, table.dtype());
  const std::uint32_t* index = ptr<std::uint32_t>(index_u32);
  for (std::int64_t i = 0; i < rows; ++i) {
    if (index[i] >= table.shape()[0]) {
      throw base::Error("gather: row " + std::to_string(index[i]) + " of a table " + table.shape().text());
    }
  }
  with_table(tape, y.dtype(), [&]<class T>(const ops::OpTable<T>& t) { t.gather(rows, d, index, ptr<T>(table), ptr<T>(y)); });
  return result(tape, std::move(y), table.wants_grad(), [&tape, index_u32, d, dtable = table.gradient()](const Tensor& dy) {
    with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      t.gather_backward(index_u32.size(), d, ptr<std::uint32_t>(index_u32), ptr<T>(dy), grad_ptr<T>(dtable));
    });
  });
}

Var add_row(Tape& tape, const Var& x, const Var& row) {
  require(x.defined() && row.defined() && row.value().size() == x.value().cols() && row.dtype() == x.dtype(), "add_row",
          {&x.value(), &row.value()});
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  with_table(tape, y.dtype(), [&]<class T>(const ops::OpTable<T>& t) { t.add_row(y.rows(), y.cols(), ptr<T>(x), ptr<T>(row), ptr<T>(y)); });
  return result(tape, std::move(y), detail::any_wants_grad({&x, &row}),
                [&tape, dx = x.gradient(), drow = row.gradient()](const Tensor& dy) {
                  with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
                    t.add_row_backward(dy.rows(), dy.cols(), ptr<T>(dy), nullptr, grad_ptr<T>(drow));
                    pass_through(t, dy, dx);
                  });
                });
}

Var rms_norm(Tape& tape, const Var& x, const Var& gain, double eps) {
  require(x.defined() && gain.defined() && gain.value().size() == x.value().cols() && gain.dtype() == x.dtype(), "rms_norm",
          {&x.value(), &gain.value()});
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  Tensor inv = Tensor::empty({y.rows()}, x.dtype());
  const ops::RmsNorm shape{.rows = y.rows(), .d = y.cols(), .eps = eps};
  with_table(tape, y.dtype(),
             [&]<class T>(const ops::OpTable<T>& t) { t.rms_norm(shape, ptr<T>(x), ptr<T>(gain), ptr<T>(y), ptr<T>(inv)); });
  return result(tape, std::move(y), detail::any_wants_grad({&x, &gain}), [&tape, x, gain, inv, shape](const Tensor& dy) {
    with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      t.rms_norm_backward(shape, ptr<T>(x), ptr<T>(gain), ptr<T>(inv), ptr<T>(dy), grad_ptr<T>(x.gradient()), grad_ptr<T>(gain.gradient()));
    });
  });
}

Var silu(Tape& tape, const Var& x) {
  require(x.defined(), "silu", {&x.value()});
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  with_table(tape, y.dtype(), [&]<class T>(const ops::OpTable<T>& t) { t.silu(y.size(), ptr<T>(x), ptr<T>(y)); });
  return result(tape, std::move(y), x.wants_grad(), [&tape, x](const Tensor& dy) {
    with_table(tape, dy.dtype(),
               [&]<class T>(const ops::OpTable<T>& t) { t.silu_backward(dy.size(), ptr<T>(x), ptr<T>(dy), grad_ptr<T>(x.gradient())); });
  });
}

Var sigmoid(Tape& tape, const Var& x) {
  require(x.defined(), "sigmoid", {&x.value()});
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  with_table(tape, y.dtype(), [&]<class T>(const ops::OpTable<T>& t) { t.sigmoid(y.size(), ptr<T>(x), ptr<T>(y)); });
  return result(tape, y, x.wants_grad(), [&tape, y, dx = x.gradient()](const Tensor& dy) {
    with_table(tape, dy.dtype(),
               [&]<class T>(const ops::OpTable<T>& t) { t.sigmoid_backward(dy.size(), ptr<T>(y), ptr<T>(dy), grad_ptr<T>(dx)); });
  });
}

Var scale_columns(Tape& tape, const Var& x, const Var& s, const Var& gates, std::int64_t expert) {
  require(x.defined() && s.defined() && s.value().size() == x.value().cols() && s.dtype() == x.dtype() &&
              (!gates.defined() || (gates.value().rows() == x.value().rows() && expert >= 0 && expert + 3 < gates.value().cols() &&
                                    gates.dtype() == x.dtype())),
          "scale_columns", {&x.value(), &s.value(), &gates.value()});
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  const ops::ScaleColumns shape{.rows = y.rows(), .k = y.cols(), .p_stride = gates.defined() ? gates.value().cols() : 0};
  const std::int64_t column = expert + 3;
  with_table(tape, y.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
    t.scale_columns(shape, ptr<T>(x), ptr<T>(s), gates.defined() ? ptr<T>(gates) + column : nullptr, ptr<T>(y));
  });
  return result(tape, std::move(y), detail::any_wants_grad({&x, &s, &gates}), [&tape, x, s, gates, shape, column](const Tensor& dy) {
    with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      T* dp = grad_ptr<T>(gates.gradient());
      t.scale_columns_backward(shape, ptr<T>(x), ptr<T>(s), gates.defined() ? ptr<T>(gates) + column : nullptr, ptr<T>(dy),
                               grad_ptr<T>(x.gradient()), grad_ptr<T>(s.gradient()), dp != nullptr ? dp + column : nullptr);
    });
  });
}

}  // namespace dormouse::autograd
