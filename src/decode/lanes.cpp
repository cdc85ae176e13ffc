#include "decode/lanes.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/cpu/team.h"

namespace dormouse::decode {

Lanes::Lanes(const network::Weights& weights, std::size_t count, std::int64_t depth)
    : weights_(weights),
      depth_(depth),
      state_(network::zero_state(weights.config, static_cast<std::int64_t>(count))),
      readers_(count, table::KeyReader(weights.config.engram_orders)),
      logits_(count * 256),
      positions_(count, 0) {
  if (depth < 0 || depth > weights.config.max_iter) {
    throw base::UsageError("--depth " + std::to_string(depth) + ": this model has depths 1 to " + std::to_string(weights.config.max_iter));
  }
  const std::int64_t iterations = depth > 0 ? depth : weights.config.max_iter;
  for (const auto* m : network::loop_matrices(weights)) products_ += iterations * m->k() * m->n();
  for (const auto* m : network::once_matrices(weights)) products_ += m->k() * m->n();
}

void Lanes::restart() {
  for (std::size_t lane = 0; lane < count(); ++lane) restart(lane);
}

void Lanes::restart(std::size_t lane) {
  for (auto& state : state_.kda) {
    const auto size = static_cast<std::size_t>(state.size()) / count();
    std::memset(state.data<float>() + lane * size, 0, size * sizeof(float));
  }
  readers_[lane].restart();
  positions_[lane] = 0;
}

void Lanes::step(std::span<const std::uint8_t> bytes) { run(0, bytes.size(), bytes, std::span(logits_).first(bytes.size() * 256)); }

void Lanes::read(std::size_t lane, std::span<const std::uint8_t> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kPiece)
    run(lane, 1, bytes.subspan(at, std::min(kPiece, bytes.size() - at)), std::span(logits_).subspan(lane * 256, 256));
}

void Lanes::run(std::size_t first, std::size_t batch, std::span<const std::uint8_t> bytes, std::span<float> logits) {
  if (batch == 0) return;
  const std::size_t time = bytes.size() / batch;
  keys_.clear();
  if (weights_.config.use_engram) {
    for (std::size_t i = 0; i < batch; ++i) readers_[first + i].read(bytes.subspan(i * time, time), keys_);
  }
  const network::StepInput input{.batch = static_cast<std::int64_t>(batch),
                                 .time = static_cast<std::int64_t>(time),
                                 .bytes = bytes,
                                 .keys = keys_,
                                 .first = static_cast<std::int64_t>(first)};
  ops::cpu::Team::fit(products_ * static_cast<std::int64_t>(bytes.size()),
                      [&] { network::step(ops::cpu_table(true), weights_, input, state_, scratch_, logits, depth_); });
  for (std::size_t i = 0; i < batch; ++i) positions_[first + i] += static_cast<std::int64_t>(time);
}

}  // namespace dormouse::decode
