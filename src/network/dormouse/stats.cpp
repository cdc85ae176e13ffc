#include "network/dormouse/stats.h"

#include <cmath>

namespace dormouse::network {

IterationStats iteration_stats(const ModelConfig& config, const tensor::Tensor& u, const tensor::Tensor& gates) {
  constexpr double kSaturated = 0.01;
  IterationStats s;
  double squares = 0;
  for (std::int64_t i = 0; i < u.size(); ++i) squares += u.at(i) * u.at(i);
  s.u_rms = u.size() == 0 ? 0 : std::sqrt(squares / static_cast<double>(u.size()));
  const auto saturated = [](double gate) { return gate < kSaturated || gate > 1 - kSaturated ? 1.0 : 0.0; };
  const std::int64_t rows = gates.rows();
  for (std::int64_t r = 0; r < rows; ++r) {
    const double attention = gates.at(r * gates.cols());
    const double memory = gates.at(r * gates.cols() + 1);
    const double ffn = gates.at(r * gates.cols() + 2);
    s.attention_gate += attention;
    s.memory_gate += memory;
    s.ffn_gate += ffn;
    s.attention_saturated += saturated(attention);
    s.ffn_saturated += saturated(ffn);
    s.memory_saturated += memory >= config.engram_lam_max * (1 - 1e-6) || memory < kSaturated * config.engram_lam_max ? 1.0 : 0.0;
  }
  for (double* mean : {&s.attention_gate, &s.memory_gate, &s.ffn_gate, &s.attention_saturated, &s.memory_saturated, &s.ffn_saturated}) {
    *mean /= static_cast<double>(rows > 0 ? rows : 1);
  }
  return s;
}

}  // namespace dormouse::network
