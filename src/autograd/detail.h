// What the op files share: dtype dispatch, raw pointers, shape checks.
#pragma once

#include <initializer_list>
#include <utility>

#include "autograd/ops.h"
#include "base/error.h"

namespace dormouse::autograd::detail {

// body(table) with the tape's f32 table or the f64 reference column; inside, T is the element type.
template <class Body>
void with_table(const Tape& tape, Dtype dtype, const Body& body) {
  if (dtype == Dtype::f32) {
    body(tape.table<float>());
  } else if (dtype == Dtype::f64) {
    body(tape.table<double>());
  } else {
    throw base::Error("no op works on " + tensor::name_of(dtype) + " values");
  }
}

// Null for an undefined tensor. The table's ops take dense matrices.
template <class T>
T* ptr(const Tensor& t) {
  if (!t.defined()) return nullptr;
  if (!t.contiguous()) throw base::Error("an op was given the strided tensor " + t.shape().text() + "; clone it");
  return t.data<T>();
}
template <class T>
T* ptr(const Var& v) {
  return ptr<T>(v.value());
}

// The gradient to accumulate into; null when none is wanted.
template <class T>
T* grad_ptr(const Gradient& gradient) {
  return gradient.wanted() ? ptr<T>(gradient.tensor()) : nullptr;
}

// gradient += dy, as the last use of dy in a backward.
template <class T>
void pass_through(const ops::OpTable<T>& table, const Tensor& dy, const Gradient& gradient) {
  if (!gradient.wanted() || gradient.take(dy)) return;
  table.axpy(dy.size(), T{1}, ptr<T>(dy), grad_ptr<T>(gradient));
}

// `holds`, or an error that names the op and the shapes it was given.
[[noreturn]] void fail_shapes(const char* op, std::initializer_list<const Tensor*> given);
inline void require(bool holds, const char* op, std::initializer_list<const Tensor*> given) {
  if (!holds) fail_shapes(op, given);
}

inline bool any_wants_grad(std::initializer_list<const Var*> inputs) {
  for (const Var* v : inputs) {
    if (v->wants_grad()) return true;
  }
  return false;
}

// The op's output: pushes the backward when it is recorded and some input wants a gradient.
template <class Backward>
Var result(Tape& tape, Tensor y, bool wants_grad, Backward&& backward) {
  Var out(std::move(y), tape.recording() && wants_grad);
  if (out.wants_grad()) tape.push(out, std::forward<Backward>(backward));
  return out;
}

}  // namespace dormouse::autograd::detail
