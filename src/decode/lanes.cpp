#include "decode/lanes.h"

#include <algorithm>
#include <cstring>

#include "network/dormouse/step.h"
#include "table/keys.h"

namespace dormouse::decode {

Lanes::Lanes(const network::ModelConfig& config, const network::Parameters& parameters, std::size_t count)
    : config_(config),
      parameters_(parameters),
      state_(network::zero_state(config, static_cast<std::int64_t>(count))),
      tails_(count),
      logits_(count * 256) {}

void Lanes::restart() {
  for (auto& state : state_.kda) std::memset(state.data<float>(), 0, static_cast<std::size_t>(state.size()) * sizeof(float));
  for (auto& tail : tails_) tail.clear();
}

void Lanes::step(std::span<const std::uint8_t> bytes) {
  keys_.clear();
  if (config_.use_engram) {
    const auto longest = static_cast<std::size_t>(*std::max_element(config_.engram_orders.begin(), config_.engram_orders.end()));
    std::vector<std::uint32_t> row(longest * table::kOrders);
    for (std::size_t lane = 0; lane < bytes.size(); ++lane) {
      auto& tail = tails_[lane];
      if (tail.size() == longest) tail.erase(tail.begin());
      tail.push_back(bytes[lane]);
      const auto keys = std::span(row).first(tail.size() * table::kOrders);
      table::ngram_keys(tail, config_.engram_orders, keys);
      keys_.insert(keys_.end(), keys.end() - table::kOrders, keys.end());
    }
  }
  network::step(ops::cpu_table(true), config_, parameters_, bytes, keys_, state_, std::span(logits_).first(bytes.size() * 256));
}

}  // namespace dormouse::decode
