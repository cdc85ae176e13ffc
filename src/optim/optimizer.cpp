#include "optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "optim/matrices.h"
#include "optim/muon.h"

namespace dormouse::optim {

namespace {

using tensor::Dtype;
using tensor::Kind;
using tensor::Role;

constexpr std::array kGroups{Group::muon, Group::qk, Group::dense, Group::table, Group::rest};

bool is_factor(const Parameter& p) { return p.kind == Kind::factor_in || p.kind == Kind::factor_out; }

// The matrix Muon works on has fan-out rows: dense [in,out] and factor_in [in,k] are stored as its transpose.
bool stored_transposed(const Parameter& p) { return p.kind != Kind::factor_out; }

double multiplier_of(const OptimizerConfig& config, Group group, Role role) {
  if (role == Role::embedding) return config.mult_embedding;
  switch (group) {
    case Group::muon:
      return config.mult_muon;
    case Group::qk:
      return config.mult_qk;
    case Group::dense:
      return config.mult_dense;
    case Group::table:
      return config.mult_table;
    case Group::rest:
      return config.mult_rest;
  }
  return 1;
}

// Only 2-D dense weights decay: neither gains, biases, scalars, s, embeddings nor tables, nor the factors (retraction rules them).
double weight_decay_of(const OptimizerConfig& config, Group group, const Parameter& p) {
  const bool decays = group != Group::table && p.kind == Kind::dense && p.value.rank() == 2 && p.role != Role::embedding &&
                      p.role != Role::iteration && p.role != Role::norm;
  return decays ? config.weight_decay : 0;
}

void check(const Parameter& p, Group group) {
  const auto refuse = [&](const std::string& why) {
    throw base::Error(fmt::format("parameter {} {} {} (group {})", base::escape(p.name), p.value.shape().text(), why, name_of(group)));
  };
  if (!p.value.defined() || p.value.dtype() != Dtype::f32 || !p.value.contiguous()) refuse("must be a contiguous f32 tensor");
  if ((group != Group::rest || is_factor(p)) && p.value.rank() != 2) refuse("must be a matrix");
  if (group == Group::qk && (p.heads < 1 || p.value.cols() % p.heads != 0)) refuse(fmt::format("does not divide into {} heads", p.heads));
}

const float* gradient(const Parameter& p) { return p.grad.data<float>(); }

// Calls visit(first row, rows) for every touched row (null: one block of all rows).
template <class F>
void for_touched(const std::vector<std::uint32_t>* touched, std::int64_t rows, const F& visit) {
  if (touched == nullptr) {
    visit(std::int64_t{0}, rows);
    return;
  }
  for (const std::uint32_t row : *touched) visit(static_cast<std::int64_t>(row), std::int64_t{1});
}

}  // namespace

std::string name_of(Group group) {
  switch (group) {
    case Group::muon:
      return "muon";
    case Group::qk:
      return "qk";
    case Group::dense:
      return "dense";
    case Group::table:
      return "table";
    case Group::rest:
      return "rest";
  }
  return "?";
}

Group group_of(const Parameter& parameter, const std::string& opt) {
  if (opt != "mix" && opt != "mix-dense" && opt != "adamw")
    throw base::UsageError(fmt::format("optimizer \"{}\" is unknown; choose mix-dense, mix or adamw", base::escape(opt)));
  if (parameter.role == Role::engram_table) return Group::table;
  if (opt == "adamw") return Group::rest;
  const bool spectral_body = parameter.role == Role::expert || parameter.role == Role::readout;
  if (spectral_body && is_factor(parameter)) return Group::muon;
  if (parameter.role == Role::engram_key && parameter.kind == Kind::dense) return Group::muon;
  if (parameter.role == Role::attention_qk && parameter.kind == Kind::dense) return Group::qk;
  const bool projection = parameter.role == Role::attention || parameter.role == Role::memory_dense || parameter.role == Role::engram_value;
  if (opt == "mix-dense" && projection && parameter.kind == Kind::dense) return Group::dense;
  return Group::rest;
}

Optimizer::Optimizer(std::vector<Parameter*> parameters, OptimizerConfig config, const ops::OpTable<float>& table)
    : config_(std::move(config)), table_(&table), applied_(Tensor::zeros({1}, Dtype::u32)) {
  for (Parameter* p : parameters) {
    const Group group = group_of(*p, config_.opt);
    check(*p, group);
    Slot slot{.parameter = p,
              .group = group,
              .multiplier = multiplier_of(config_, group, p->role),
              .weight_decay = weight_decay_of(config_, group, *p),
              .heads = group == Group::qk ? p->heads : 1};
    const auto zeros = [&] { return Tensor::zeros(p->value.shape(), Dtype::f32); };
    if (group == Group::muon || group == Group::qk || group == Group::dense) {
      slot.momentum = zeros();
    } else {
      slot.m = zeros();
      slot.v = zeros();
    }
    if (group == Group::table) slot.count = Tensor::zeros({p->value.dim(0)}, Dtype::u32);
    slots_.push_back(std::move(slot));
  }
}

StepReport Optimizer::step(const Rates& rates, const std::vector<std::uint32_t>* touched_rows) {
  StepReport report;
  double all = 0;
  double rest = 0;
  for (const Slot& slot : slots_) {
    const double squares = gradient_squares(slot, touched_rows);
    all += squares;
    if (slot.group == Group::rest) rest += squares;
  }
  report.grad_norm = std::sqrt(all);
  report.clip_norm = std::sqrt(rest);
  if (!std::isfinite(all)) {
    report.applied = false;
    return report;
  }

  std::uint32_t& applied = applied_.data<std::uint32_t>()[0];
  ++applied;
  const double grad_scale = config_.grad_clip > 0 && report.clip_norm > config_.grad_clip ? config_.grad_clip / report.clip_norm : 1;
  for (Slot& slot : slots_) {
    if (slot.group == Group::table) step_table(slot, rates.table * slot.multiplier, touched_rows);
    if (slot.group == Group::rest) step_rest(slot, rates.all * slot.multiplier, grad_scale);
  }
  report.zero_gradients = step_matrices(rates.all);
  if (config_.retract_every > 0 && applied % config_.retract_every == 0) {
    const auto start = base::Clock::now();
    retract_factors();
    report.retraction_seconds = base::seconds_since(start);
  }
  return report;
}

void Optimizer::forget(const Parameter& parameter) {
  for (const Slot& slot : slots_) {
    if (slot.parameter != &parameter) continue;
    for (const Tensor* state : {&slot.momentum, &slot.m, &slot.v, &slot.count})
      if (state->defined()) state->fill_zero();
  }
}

double Optimizer::gradient_squares(const Slot& slot, const std::vector<std::uint32_t>* touched_rows) const {
  const Parameter& p = *slot.parameter;
  if (!p.grad.defined())
    throw base::Error(fmt::format("parameter {} has no gradient; run a backward pass that reaches it before the optimizer step", p.name));
  if (slot.group != Group::table) return table_->sum_squares(p.grad.size(), gradient(p));
  const std::int64_t d = p.value.cols();
  double squares = 0;
  for_touched(touched_rows, p.value.dim(0),
              [&](std::int64_t row, std::int64_t rows) { squares += table_->sum_squares(rows * d, gradient(p) + row * d); });
  return squares;
}

std::int64_t Optimizer::step_matrices(double lr) {
  struct Matrix {
    const Slot* slot;
    std::int64_t first, width;  // columns
  };
  std::vector<Matrix> matrices;
  std::vector<Tensor> values;
  for (const Slot& slot : slots_) {
    if (slot.group == Group::table || slot.group == Group::rest) continue;
    const std::int64_t width = slot.parameter->value.cols() / slot.heads;
    for (std::int64_t head = 0; head < slot.heads; ++head) {
      matrices.push_back({&slot, head * width, width});
      values.push_back(slot.parameter->value.columns(head * width, width));
    }
  }
  std::atomic<std::int64_t> zero = 0;
  for_each_matrix(*table_, values, [&](std::size_t i) {
    const auto& [slot, first, width] = matrices[i];
    const double rate = lr * slot->multiplier;
    const auto part = [&](const Tensor& whole) {  // a head lies between others: a copy
      const Tensor columns = whole.columns(first, width);
      return slot->heads == 1 ? columns : columns.clone();
    };
    const Tensor value = part(slot->parameter->value), momentum = part(slot->momentum);
    if (!step_matrix(*slot, rate, value, part(slot->parameter->grad), momentum)) {
      ++zero;
    } else if (slot->heads > 1) {
      values[i].copy_from(value);
      slot->momentum.columns(first, width).copy_from(momentum);
    }
  });
  return zero;
}

void Optimizer::retract_factors() {
  std::vector<Tensor> factors;
  for (const Slot& slot : slots_)
    if (is_factor(*slot.parameter)) factors.push_back(slot.parameter->value);
  for_each_matrix(*table_, factors, [&](std::size_t i) { retract(*table_, factors[i], config_.retract_iters); });
}

// W <- (1 - lr wd) W - lr sqrt(max(1, rows/cols)) ColRow(NS(M)),  M <- beta M + (1-beta) G. False: G is zero, nothing changed.
bool Optimizer::step_matrix(const Slot& slot, double lr, const Tensor& value, const Tensor& grad, const Tensor& momentum) const {
  const std::int64_t n = value.size();
  if (!(table_->sum_squares(n, grad.data<float>()) > 0)) return false;
  float* m = momentum.data<float>();
  table_->axpy(n, static_cast<float>(config_.muon_momentum - 1), m, m);
  table_->axpy(n, static_cast<float>(1 - config_.muon_momentum), grad.data<float>(), m);

  const bool transposed = stored_transposed(*slot.parameter);
  const Tensor update = momentum.clone();
  newton_schulz(*table_, update, config_.ns_steps, config_.ns_compute);
  column_row_normalize(*table_, update, transposed);

  const auto fan_in = static_cast<double>(transposed ? value.dim(0) : value.dim(1));
  const auto fan_out = static_cast<double>(transposed ? value.dim(1) : value.dim(0));
  float* w = value.data<float>();
  if (slot.weight_decay != 0) table_->axpy(n, static_cast<float>(-lr * slot.weight_decay), w, w);
  table_->axpy(n, static_cast<float>(-lr * std::sqrt(std::max(1.0, fan_out / fan_in))), update.data<float>(), w);
  return true;
}

// Adam on the touched rows, each corrected by its own count of updates.
void Optimizer::step_table(Slot& slot, double lr, const std::vector<std::uint32_t>* touched_rows) {
  Parameter& p = *slot.parameter;
  const std::int64_t d = p.value.cols();
  auto* count = slot.count.data<std::uint32_t>();
  for_touched(touched_rows, p.value.dim(0), [&](std::int64_t first, std::int64_t rows) {
    for (std::int64_t row = first; row < first + rows; ++row) {
      if (count[row] != std::numeric_limits<std::uint32_t>::max()) ++count[row];
      adam(slot, row * d, d, lr, count[row], 1.0);
    }
  });
}

void Optimizer::step_rest(Slot& slot, double lr, double grad_scale) {
  adam(slot, 0, slot.parameter->value.size(), lr, applied_.data<std::uint32_t>()[0], grad_scale);
}

// Elements [begin, begin + n) of the parameter at update number t.
void Optimizer::adam(Slot& slot, std::int64_t begin, std::int64_t n, double lr, std::uint32_t t, double grad_scale) const {
  const Parameter& p = *slot.parameter;
  table_->adamw(n, static_cast<float>(lr), static_cast<float>(config_.beta1), static_cast<float>(config_.beta2),
                static_cast<float>(config_.eps), static_cast<float>(slot.weight_decay), static_cast<float>(1 - std::pow(config_.beta1, t)),
                static_cast<float>(1 - std::pow(config_.beta2, t)), static_cast<float>(grad_scale), gradient(p) + begin,
                slot.m.data<float>() + begin, slot.v.data<float>() + begin, p.value.data<float>() + begin);
}

double Optimizer::max_ortho() const {
  double worst = 0;
  for (const Slot& slot : slots_)
    if (is_factor(*slot.parameter)) worst = std::max(worst, orthonormality_error(*table_, slot.parameter->value));
  return worst;
}

std::int64_t Optimizer::applied() const { return applied_.data<std::uint32_t>()[0]; }

void Optimizer::for_each_state(const std::function<void(const std::string& name, Tensor& value)>& visit) {
  for (Slot& slot : slots_) {
    const std::string prefix = "optimizer." + slot.parameter->name + ".";
    if (slot.momentum.defined()) visit(prefix + "momentum", slot.momentum);
    if (slot.m.defined()) visit(prefix + "m", slot.m);
    if (slot.v.defined()) visit(prefix + "v", slot.v);
    if (slot.count.defined()) visit(prefix + "count", slot.count);
  }
  visit("optimizer.applied", applied_);
}

std::string Optimizer::routing_table() const {
  std::size_t width = 9;
  for (const Slot& slot : slots_) width = std::max(width, slot.parameter->name.size());
  std::string out = fmt::format("{:<{}}  {:<5}  {:>14}  {:>5}  {:>5}\n", "parameter", width, "group", "shape", "lr x", "decay");
  for (const Slot& slot : slots_)
    out += fmt::format("{:<{}}  {:<5}  {:>14}  {:>5}  {:>5}\n", slot.parameter->name, width, name_of(slot.group),
                       slot.parameter->value.shape().text(), slot.multiplier, slot.weight_decay);
  return out;
}

std::string Optimizer::summary() const {
  std::string out;
  for (const Group group : kGroups) {
    std::int64_t tensors = 0;
    std::uint64_t elements = 0;
    for (const Slot& slot : slots_) {
      if (slot.group != group) continue;
      ++tensors;
      elements += static_cast<std::uint64_t>(slot.parameter->value.size());
    }
    if (tensors == 0) continue;
    out += fmt::format("{}{} {} ({})", out.empty() ? "" : ", ", name_of(group), tensors, base::human_count(elements));
  }
  return out;
}

}  // namespace dormouse::optim
