// From logits to one byte: temperature, top-k, top-p, min-p, repeat penalty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/random.h"

namespace dormouse::decode {

inline constexpr std::size_t kPenaltyWindow = 64;  // bytes that the repeat penalty looks back on

struct SamplerConfig {
  double temperature = 0.8;   // 0: the most likely byte, lowest value on ties
  std::int64_t top_k = 0;     // 0: off; keep the k most likely
  double top_p = 1;           // keep the smallest set of most likely bytes whose probabilities reach top_p
  double min_p = 0;           // drop bytes below min_p times the largest probability
  double repeat_penalty = 1;  // logits of bytes among the last kPenaltyWindow are divided (positive) or multiplied (negative) by it
};

// base::UsageError naming the flag when a value is out of range.
void validate(const SamplerConfig& config);

class Sampler {
 public:
  Sampler(const SamplerConfig& config, std::uint64_t seed) : config_(config), random_(seed) {}
  // logits [256] finite; recent: the bytes so far, oldest first. base::Error when a logit is not finite.
  std::uint8_t next(std::span<const float> logits, std::span<const std::uint8_t> recent);
  std::uint64_t seed() const { return random_.state(); }  // of a sampler that goes on where this one stands

 private:
  SamplerConfig config_;
  base::SplitMix64 random_;
};

}  // namespace dormouse::decode
