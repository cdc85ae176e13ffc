#include "train/step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "layer/engram.h"
#include "table/keys.h"

namespace dormouse::train {
namespace {

double mean(const autograd::Var& values) {
  const float* x = values.value().data<float>();
  double sum = 0;
  for (std::int64_t i = 0; i < values.value().size(); ++i) sum += static_cast<double>(x[i]);
  return sum / static_cast<double>(values.value().size());
}

}  // namespace

Trainer::Trainer(const RunConfig& config, network::Parameters parameters)
    : config_(config),
      parameters_(std::move(parameters)),
      list_(network::list(parameters_, config_.model)),
      optimizer_(list_, optimizer_config(config_.train), ops::cpu_table()) {
  const auto& train = config_.train;
  if (config_.model.use_engram) {
    const std::int64_t rows = std::min(train.batch * train.seq_len * train.accum, config_.model.engram_rows);
    written_.reserve(static_cast<std::size_t>(table::kOrders * rows));
  }
}

bool Trainer::finite() const {
  for (const auto* parameter : list_) {
    const float* x = parameter->value.data<float>();
    if (!std::all_of(x, x + parameter->value.size(), [](float value) { return std::isfinite(value); })) return false;
  }
  return true;
}

void Trainer::zero_gradients() {
  for (auto* parameter : list_) {
    if (parameter->kind != tensor::Kind::table) {
      parameter->zero_grad();
    } else if (parameter->grad.defined()) {
      const std::int64_t d = parameter->grad.cols();
      for (const std::uint32_t row : written_) std::fill_n(parameter->grad.data<float>() + row * d, d, 0.0F);
    }
  }
}

void Trainer::forget_memory() {
  layer::draw_engram_table(parameters_.engram, static_cast<std::uint64_t>(config_.train.seed));
  optimizer_.forget(parameters_.engram.table);
}

StepResult Trainer::step(const StepData& data, const optim::Rates& rates, bool want_stats, StepSeconds* seconds) {
  StepResult result;
  zero_gradients();
  written_ = data.touched;
  const double share = 1.0 / static_cast<double>(data.parts.size());
  for (const auto& part : data.parts) {
    autograd::Tape tape(true, compute_of(config_.train.compute));
    if (seconds != nullptr) tape.measure(seconds->stages);
    network::LoopInput input;
    input.batch = config_.train.batch;
    input.time = config_.train.seq_len;
    input.bytes = part.inputs;
    input.keys = part.keys;
    input.targets = part.targets;
    network::LoopOptions options;
    options.want_stats = want_stats;
    options.recompute = config_.train.recompute;
    auto output = network::loop(tape, config_.model, parameters_, input, options);
    result.nats += share * mean(output.final_nats);
    for (const auto& iteration : output.nats) result.rec_nats += share * mean(iteration) / static_cast<double>(output.nats.size());
    result.loss += share * static_cast<double>(output.loss.value().data<float>()[0]);
    if (want_stats) result.stats = std::move(output.stats);
    tape.backward(output.loss, share);
  }
  if (!std::isfinite(result.loss)) {
    result.applied = false;
    return result;
  }
  const auto start = base::Clock::now();
  result.report = optimizer_.step(rates, config_.model.use_engram ? &data.touched : nullptr);
  if (seconds != nullptr) {
    seconds->update += base::seconds_since(start) - result.report.retraction_seconds;
    seconds->retraction += result.report.retraction_seconds;
  }
  result.applied = result.report.applied;
  return result;
}

}  // namespace dormouse::train
