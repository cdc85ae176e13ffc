#include "decode/distribution.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace dormouse::decode {
namespace {

// e^x for x in [-50, 0]: 2^k e^r with |r| <= ln2/2, Taylor to the eighth power (relative error 4e-10).
inline double exp_of(double x) {
  constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;
  const int k = static_cast<int>(x * kLog2E - 0.5);
  const double r = x - static_cast<double>(k) * kLn2;
  double p = 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return p * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + k) << 52);
}

}  // namespace

bool quantise(std::span<const float> logits, Counts& counts) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  std::size_t best = 0;
  bool finite = true;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    finite = finite && logits[i] >= -kLargest && logits[i] <= kLargest;
    if (logits[i] > logits[best]) best = i;
  }
  if (!finite) return false;

  std::array<double, 256> weight;
  const auto most = static_cast<double>(logits[best]);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = exp_of(std::max(static_cast<double>(logits[i]) - most, -50.0));
  double sum = 0;
  for (const double w : weight) sum += w;
  const double scale = (0x1p32 - 256) / sum;
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i] = 1 + static_cast<std::uint32_t>(weight[i] * scale);
    used += counts[i];
  }
  counts[best] += static_cast<std::uint32_t>((std::uint64_t{1} << 32) - used);
  return true;
}

}  // namespace dormouse::decode
