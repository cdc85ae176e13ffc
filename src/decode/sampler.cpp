#include "decode/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>

#include "base/error.h"

namespace dormouse::decode {
namespace {

constexpr std::size_t kClasses = 256;

void penalize(std::array<double, kClasses>& logits, std::span<const std::uint8_t> recent, double penalty) {
  std::array<bool, kClasses> seen{};
  for (const auto byte : recent.last(std::min(recent.size(), kPenaltyWindow))) seen[byte] = true;
  for (std::size_t c = 0; c < kClasses; ++c) {
    if (seen[c]) logits[c] = logits[c] > 0 ? logits[c] / penalty : logits[c] * penalty;
  }
}

}  // namespace

void validate(const SamplerConfig& config) {
  const auto refuse = [](const std::string& what) { throw base::UsageError(what); };
  if (!(config.temperature >= 0 && config.temperature <= 100)) refuse("--temp must be from 0 (greedy) to 100");
  if (config.top_k < 0) refuse("--top-k must be 0 (off) or more");
  if (!(config.top_p > 0 && config.top_p <= 1)) refuse("--top-p must be above 0 and at most 1 (off)");
  if (!(config.min_p >= 0 && config.min_p <= 1)) refuse("--min-p must be from 0 (off) to 1");
  if (!(config.repeat_penalty >= 0.01 && config.repeat_penalty <= 100)) refuse("--repeat-penalty must be from 0.01 to 100 (1: off)");
}

std::uint8_t Sampler::next(std::span<const float> logits, std::span<const std::uint8_t> recent) {
  std::array<double, kClasses> x{};
  for (std::size_t c = 0; c < kClasses; ++c) {
    if (!std::isfinite(logits[c])) throw base::Error("the model gave a logit that is not a number; its weights are damaged");
    x[c] = static_cast<double>(logits[c]);
  }
  if (config_.repeat_penalty != 1) penalize(x, recent, config_.repeat_penalty);
  if (config_.temperature == 0) return static_cast<std::uint8_t>(std::max_element(x.begin(), x.end()) - x.begin());

  std::array<std::uint16_t, kClasses> order{};
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return x[a] > x[b]; });
  std::array<double, kClasses> p{};
  double total = 0;
  for (std::size_t i = 0; i < kClasses; ++i) total += p[i] = std::exp((x[order[i]] - x[order[0]]) / config_.temperature);

  std::size_t kept = kClasses;
  if (config_.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(config_.top_k));
  if (config_.top_p < 1) {
    double sum = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      sum += p[i] / total;
      if (sum >= config_.top_p) kept = i + 1;
    }
  }
  if (config_.min_p > 0) {
    while (kept > 1 && p[kept - 1] < config_.min_p * p[0]) --kept;
  }
  const double sum = std::accumulate(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
  double draw = random_.uniform() * sum;
  for (std::size_t i = 0; i < kept; ++i) {
    draw -= p[i];
    if (draw < 0) return static_cast<std::uint8_t>(order[i]);
  }
  return static_cast<std::uint8_t>(order[kept - 1]);
}

}  // namespace dormouse::decode
