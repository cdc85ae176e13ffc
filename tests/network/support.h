// Shared by the network tests: seeded text, keys, a small config.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "network/dormouse/loop.h"
#include "table/keys.h"

namespace dormouse::network::testing {

inline std::vector<std::uint8_t> random_bytes(std::size_t n, std::uint64_t seed) {
  base::SplitMix64 random(seed);
  std::vector<std::uint8_t> bytes(n);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.below(256));
  return bytes;
}

// Keys of `batch` rows laid end to end.
inline std::vector<std::uint32_t> keys_of(const ModelConfig& config, std::span<const std::uint8_t> bytes, std::int64_t batch) {
  std::vector<std::uint32_t> keys(bytes.size() * 3);
  const std::size_t time = bytes.size() / static_cast<std::size_t>(batch);
  for (std::size_t r = 0; r < static_cast<std::size_t>(batch); ++r) {
    table::ngram_keys(bytes.subspan(r * time, time), config.engram_orders, std::span(keys).subspan(r * time * 3, time * 3));
  }
  return keys;
}

inline ModelConfig small_config() {
  ModelConfig c;
  c.d_model = 24;
  c.n_heads = 2;
  c.head_dim = 10;
  c.d_ffn = 40;
  c.rank = 6;
  c.n_experts = 2;
  c.max_iter = 3;
  c.max_seq_len = 64;
  c.engram_rows = 64;
  c.engram_dim = 4;
  return c;
}

// Breaks every symmetry of the initial point (zero iteration embedding, unit gains) so that a wrong term cannot hide.
inline void perturb(Parameters& p, const ModelConfig& c, std::uint64_t seed, double size = 0.1) {
  base::SplitMix64 random(seed);
  for_each(p, c, [&](tensor::Parameter& one) {
    float* w = one.value.data<float>();
    for (std::int64_t i = 0; i < one.value.size(); ++i) w[i] += static_cast<float>(size * random.normal());
  });
}

// A small model without a symmetry.
struct SmallModel {
  ModelConfig config = small_config();
  Parameters parameters;
  explicit SmallModel(std::int64_t max_seq_len = small_config().max_seq_len) {
    config.max_seq_len = max_seq_len;
    parameters = make_parameters(config, 3);
    perturb(parameters, config, 4);
  }
};

}  // namespace dormouse::network::testing
