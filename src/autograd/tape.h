// Tape and Var: an eager record of coarse ops, replayed backwards once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "ops/ops.h"
#include "tensor/parameter.h"
#include "tensor/tensor.h"

namespace dormouse::autograd {

using tensor::Dtype;
using tensor::Parameter;
using tensor::Shape;
using tensor::Tensor;

// Where the gradient of one value is kept; copies share it. Appears when the first consumer writes to it in backward. A
// parameter's lives in parameter.grad and stays; a slice's is part of its parent's; any other is freed when the op that made
// the value has run its backward.
class Gradient {
 public:
  Gradient() = default;

  bool wanted() const { return slot_ != nullptr; }
  bool written() const;          // some consumer has written
  const Tensor& tensor() const;  // zeroed on first use
  // To be overwritten (true: nothing there yet, write with beta = 0) or added to (false: beta = 1).
  std::pair<Tensor, bool> for_gemm() const;
  // For ops that pass dy through: true when nothing was there and dy itself, its buffer not copied, is the gradient now. Later
  // consumers add to that buffer, so the op must have no more use of dy. False: nothing done, add dy.
  bool take(const Tensor& dy) const;

 private:
  friend class Var;
  friend class Tape;
  struct Slot {
    Shape shape;
    Dtype dtype = Dtype::f32;
    Tensor tensor;
    bool written = false;
    Parameter* parameter = nullptr;
    std::shared_ptr<Slot> parent;  // rows [begin, begin + shape[0]) of it
    std::int64_t begin = 0;
  };
  explicit Gradient(std::shared_ptr<Slot> slot) : slot_(std::move(slot)) {}
  static const Tensor& touch(Slot& slot);
  std::shared_ptr<Slot> slot_;
};

// A value on the tape. Copies share the value and the gradient.
class Var {
 public:
  Var() = default;
  Var(Tensor value, bool wants_grad);
  Var rows_slice(std::int64_t begin, std::int64_t count) const;  // of the first dimension; shares value and gradient

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  Dtype dtype() const { return value_.dtype(); }
  bool wants_grad() const { return gradient_.wanted(); }

  const Gradient& gradient() const { return gradient_; }
  bool has_grad() const { return gradient_.written(); }
  const Tensor& grad() const { return gradient_.tensor(); }  // zeroed on first use
  std::pair<Tensor, bool> grad_for_gemm() const { return gradient_.for_gemm(); }

 private:
  friend class Tape;
  Tensor value_;
  Gradient gradient_;
};

// Wall time of one part of the network in a pass.
struct StageSeconds {
  std::string_view name;
  double forward = 0, backward = 0;
};

// One forward pass. Not thread-safe; one per step.
class Tape {
 public:
  // record = false: no_grad, nothing is kept. compute: input type of the GEMMs that allow it (never the head's).
  explicit Tape(bool record = true, ops::Compute compute = ops::Compute::f32) : record_(record), compute_(compute) {}
  Tape(const Tape&) = delete;  // the closures point to it
  Tape& operator=(const Tape&) = delete;

  // The column used for f32 values (default: ops::cpu_table()). f64 values always run on the reference column.
  void use(const ops::OpTable<float>& table) { table_ = &table; }
  template <class T>
  const ops::OpTable<T>& table() const {
    if constexpr (std::is_same_v<T, double>) {
      return ops::reference_table<double>();
    } else {
      return table_ != nullptr ? *table_ : ops::cpu_table();
    }
  }
  ops::Compute compute() const { return compute_; }
  bool recording() const { return record_ && !paused_; }

  Var constant(Tensor value) const { return Var(std::move(value), false); }
  // The same Var for the same parameter within one tape; gradients accumulate into parameter.grad (allocated zeroed if undefined).
  Var parameter(Parameter& parameter);

  // Appends a backward closure; it runs once, then is destroyed (dropping what it saved). Ignored when not recording.
  void push(std::function<void()> backward);
  // The same for the op that made `output`: called with its gradient when some consumer has written one; that gradient is
  // then freed. The tape keeps the gradient's place only, not output's value.
  void push(const Var& output, std::function<void(const Tensor& dy)> backward);

  // Runs `segment` now for its outputs and again in backward for its gradients; what its ops save lives only there. It must do the
  // same both times, return values that it made, each once, and read what outlives the tape or is captured by value. Losses and gradients
  // keep their bits; the time of the second run counts as forward.
  std::vector<Var> recompute(std::function<std::vector<Var>()> segment);

  // Adds wall times to `stages` from here on: one entry per name that a Stage gave, and first one for what stood outside of all.
  void measure(std::vector<StageSeconds>& stages);

  // d loss / d everything for a scalar loss; scale = the gradient's start value. Leaves the tape empty, also when
  // an op throws.
  void backward(const Var& loss, double scale = 1.0);

 private:
  friend class Stage;
  struct Closure {
    std::size_t stage;
    std::function<void()> run;
  };
  void run_backward();                   // empties the tape
  std::size_t enter(std::size_t stage);  // the stage so far
  std::size_t stage_called(std::string_view name);

  bool record_;
  bool paused_ = false;
  ops::Compute compute_;
  const ops::OpTable<float>* table_ = nullptr;
  std::vector<Closure> backward_;
  std::vector<StageSeconds>* stages_ = nullptr;  // null: nothing is timed
  std::size_t stage_ = 0;
  base::Clock::time_point since_;
  std::unordered_map<const Parameter*, Var> parameters_;
};

// While it lives, the ops of a measured tape count as the part of the network called `name`, a literal. The innermost one counts.
class Stage {
 public:
  Stage(Tape& tape, std::string_view name);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

 private:
  Tape& tape_;
  std::size_t outer_ = 0;
};

}  // namespace dormouse::autograd
