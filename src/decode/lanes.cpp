#include "decode/lanes.h"

#include <cstring>

#include "network/dormouse/step.h"

namespace dormouse::decode {

Lanes::Lanes(const network::ModelConfig& config, const network::Parameters& parameters, std::size_t count)
    : config_(config),
      parameters_(parameters),
      state_(network::zero_state(config, static_cast<std::int64_t>(count))),
      readers_(count, table::KeyReader(config.engram_orders)),
      logits_(count * 256) {}

void Lanes::restart() {
  for (auto& state : state_.kda) std::memset(state.data<float>(), 0, static_cast<std::size_t>(state.size()) * sizeof(float));
  for (auto& reader : readers_) reader.restart();
}

void Lanes::step(std::span<const std::uint8_t> bytes) {
  keys_.clear();
  if (config_.use_engram) {
    for (std::size_t lane = 0; lane < bytes.size(); ++lane) readers_[lane].read(bytes.subspan(lane, 1), keys_);
  }
  network::step(ops::cpu_table(true), config_, parameters_, bytes, keys_, state_, std::span(logits_).first(bytes.size() * 256));
}

}  // namespace dormouse::decode
