// Tape and Var: an eager record of coarse ops, replayed backwards once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ops/ops.h"
#include "tensor/parameter.h"
#include "tensor/tensor.h"

namespace dormouse::autograd {

using tensor::Dtype;
using tensor::Parameter;
using tensor::Shape;
using tensor::Tensor;

// A value on the tape. Copies share the value and the gradient. The gradient buffer appears (zeroed) when the first consumer
// writes to it in backward, and is freed when the op that made the value has run its backward.
class Var {
 public:
  Var() = default;
  Var(Tensor value, bool wants_grad);

  bool defined() const { return node_ != nullptr; }
  const Tensor& value() const { return node_->value; }
  const Shape& shape() const { return node_->value.shape(); }
  Dtype dtype() const { return node_->value.dtype(); }
  bool wants_grad() const { return node_ != nullptr && node_->wants_grad; }

  bool has_grad() const;       // some consumer has written
  const Tensor& grad() const;  // zeroed on first use
  // Gradient storage to be overwritten (true: nothing there yet, write with beta = 0) or added to (false: beta = 1).
  std::pair<Tensor, bool> grad_for_gemm() const;

 private:
  friend class Tape;
  struct Node {
    Tensor value;
    Tensor grad;
    Parameter* parameter = nullptr;  // gradient lives in parameter->grad
    bool wants_grad = false;
    bool grad_written = false;
  };
  std::shared_ptr<Node> node_;
};

// One forward pass. Not thread-safe; one per step.
class Tape {
 public:
  // record = false: no_grad, nothing is kept. compute: input type of the GEMMs that allow it (never the head's).
  explicit Tape(bool record = true, ops::Compute compute = ops::Compute::f32);

  // The column used for f32 values (default: ops::cpu_table()). f64 values always run on the reference column.
  void use(const ops::OpTable<float>& table) { table_ = &table; }
  template <class T>
  const ops::OpTable<T>& table() const;
  ops::Compute compute() const { return compute_; }
  bool recording() const { return record_; }

  Var constant(Tensor value) const { return Var(std::move(value), false); }
  // The same Var for the same parameter within one tape; gradients accumulate into parameter.grad (allocated zeroed if undefined).
  Var parameter(Parameter& parameter);

  // Appends a backward closure; it runs once, then is destroyed (dropping what it saved). Ignored when not recording.
  void push(std::function<void()> backward);

  // d loss / d everything for a scalar loss; scale = the gradient's start value. Leaves the tape empty.
  void backward(const Var& loss, double scale = 1.0);

 private:
  bool record_;
  ops::Compute compute_;
  const ops::OpTable<float>* table_;
  std::vector<std::function<void()>> backward_;
  std::vector<std::pair<Parameter*, Var>> parameters_;
};

}  // namespace dormouse::autograd
