#include "autograd/tape.h"

#include "base/error.h"

namespace dormouse::autograd {

namespace {

// Seconds since `since`, which is now afterwards.
double lap(base::Clock::time_point& since) {
  const auto now = base::Clock::now();
  return std::chrono::duration<double>(now - std::exchange(since, now)).count();
}

// Calls `at_end` when it goes.
template <class AtEnd>
class Finally {
 public:
  explicit Finally(AtEnd at_end) : at_end_(std::move(at_end)) {}
  ~Finally() { at_end_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  AtEnd at_end_;
};

}  // namespace

bool Gradient::written() const {
  const Slot* slot = slot_.get();
  while (slot != nullptr && slot->parent != nullptr) slot = slot->parent.get();
  return slot != nullptr && slot->written;
}

const Tensor& Gradient::touch(Slot& slot) {
  if (slot.parent != nullptr) {
    slot.tensor = touch(*slot.parent).rows_slice(slot.begin, slot.shape[0]);
    return slot.tensor;
  }
  if (slot.parameter != nullptr) {
    Tensor& grad = slot.parameter->grad;
    if (!grad.defined()) grad = Tensor::zeros(slot.shape, slot.dtype);
    if (grad.shape() != slot.shape || grad.dtype() != slot.dtype) {
      throw base::Error("the gradient of " + base::escape(slot.parameter->name) + " is " + grad.shape().text() + " " +
                        name_of(grad.dtype()) + ", its value " + slot.shape.text() + " " + name_of(slot.dtype) + "; drop the old gradient");
    }
    slot.written = true;
    return grad;
  }
  if (!slot.written) slot.tensor = Tensor::zeros(slot.shape, slot.dtype);
  slot.written = true;
  return slot.tensor;
}

const Tensor& Gradient::tensor() const {
  if (slot_ == nullptr) throw base::Error("a gradient was asked of a value that wants none");
  return touch(*slot_);
}

std::pair<Tensor, bool> Gradient::for_gemm() const {
  if (slot_ == nullptr || slot_->written || slot_->parent != nullptr || slot_->parameter != nullptr) return {tensor(), false};
  slot_->tensor = Tensor::empty(slot_->shape, slot_->dtype);
  slot_->written = true;
  return {slot_->tensor, true};
}

bool Gradient::take(const Tensor& dy) const {
  if (slot_ == nullptr || slot_->written || slot_->parent != nullptr || slot_->parameter != nullptr) return false;
  if (dy.shape() != slot_->shape || dy.dtype() != slot_->dtype || !dy.contiguous()) return false;
  slot_->tensor = dy;
  slot_->written = true;
  return true;
}

Var::Var(Tensor value, bool wants_grad) : value_(std::move(value)) {
  if (!wants_grad) return;
  auto slot = std::make_shared<Gradient::Slot>();
  slot->shape = value_.shape();
  slot->dtype = value_.dtype();
  gradient_ = Gradient(std::move(slot));
}

Var Var::rows_slice(std::int64_t begin, std::int64_t count) const {
  Var slice(value_.rows_slice(begin, count), wants_grad());
  if (wants_grad()) {
    slice.gradient_.slot_->parent = gradient_.slot_;
    slice.gradient_.slot_->begin = begin;
  }
  return slice;
}

Var Tape::parameter(Parameter& parameter) {
  const auto found = parameters_.find(&parameter);
  if (found != parameters_.end()) return found->second;
  if (!parameter.value.defined()) throw base::Error("parameter " + base::escape(parameter.name) + " has no value");
  Var var(parameter.value, record_);
  if (record_) var.gradient_.slot_->parameter = &parameter;
  parameters_.emplace(&parameter, var);
  return var;
}

void Tape::push(std::function<void()> backward) {
  if (recording()) backward_.push_back({stage_, std::move(backward)});
}

void Tape::push(const Var& output, std::function<void(const Tensor& dy)> backward) {
  if (!recording() || !output.wants_grad()) return;
  push([slot = output.gradient_.slot_, run = std::move(backward)] {
    if (!slot->written) return;
    run(slot->tensor);
    slot->tensor = Tensor();
    slot->written = false;
  });
}

void Tape::backward(const Var& loss, double scale) {
  if (!loss.wants_grad()) throw base::Error("backward from a value that depends on no parameter of this tape");
  if (loss.value().size() != 1) throw base::Error("backward starts from one number, not from " + loss.shape().text());
  if (stages_ != nullptr) enter(0);
  parameters_.clear();
  const Tensor& start = loss.grad();
  if (loss.dtype() == Dtype::f64) {
    *start.data<double>() = scale;
  } else {
    *start.data<float>() = static_cast<float>(scale);
  }
  const Finally emptied([this] {
    backward_.clear();
    parameters_.clear();
  });
  run_backward();
}

void Tape::run_backward() {
  std::vector<Closure> closures = std::exchange(backward_, {});
  while (!closures.empty()) {
    const std::size_t stage = closures.back().stage;
    closures.back().run();
    closures.pop_back();
    if (stages_ != nullptr) (*stages_)[stage].backward += lap(since_);
  }
}

std::vector<Var> Tape::recompute(std::function<std::vector<Var>()> segment) {
  if (!recording()) return segment();
  std::vector<Var> outputs;
  {
    paused_ = true;
    const Finally resumed([this] { paused_ = false; });
    outputs = segment();
  }
  std::vector<Gradient> gradients;
  for (Var& output : outputs) {
    if (output.defined()) output = Var(output.value(), true);
    gradients.push_back(output.gradient_);
  }
  push([this, gradients = std::move(gradients), run = std::move(segment)] {
    const std::vector<Var> again = run();
    for (std::size_t i = 0; i < again.size(); ++i) {
      if (!gradients[i].written()) continue;
      if (!again[i].gradient_.take(std::exchange(gradients[i].slot_->tensor, {})))
        throw base::Error("a recomputed segment must return values that it made, each once");
      gradients[i].slot_->written = false;
    }
    run_backward();
  });
  return outputs;
}

void Tape::measure(std::vector<StageSeconds>& stages) {
  if (stages.empty()) stages.push_back({});
  stages_ = &stages;
  since_ = base::Clock::now();
}

std::size_t Tape::enter(std::size_t stage) {
  (*stages_)[stage_].forward += lap(since_);
  return std::exchange(stage_, stage);
}

std::size_t Tape::stage_called(std::string_view name) {
  std::size_t at = 1;
  while (at < stages_->size() && (*stages_)[at].name != name) ++at;
  if (at == stages_->size()) stages_->push_back({.name = name});
  return at;
}

Stage::Stage(Tape& tape, std::string_view name) : tape_(tape) {
  if (tape.stages_ != nullptr) outer_ = tape.enter(tape.stage_called(name));
}

Stage::~Stage() {
  if (tape_.stages_ != nullptr) tape_.enter(outer_);
}

}  // namespace dormouse::autograd
