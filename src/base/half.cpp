#include "base/half.h"

namespace dormouse::base {

// f16: 1 sign, 5 exponent (bias 15), 10 fraction bits. Integer arithmetic only, so that FTZ and DAZ change nothing.
std::uint16_t f16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // >= 65520 rounds to infinity
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent >= 113) {  // >= 2^-14: normal; rebias by 127 - 15
    const std::uint32_t rebased = magnitude - (112U << 23);
    return static_cast<std::uint16_t>(sign | ((rebased + 0xfffU + ((rebased >> 13) & 1U)) >> 13));
  }
  if (exponent < 102) return static_cast<std::uint16_t>(sign);  // < 2^-25: below half of the smallest subnormal
  // Subnormal: fraction in units of 2^-24. value = significand * 2^(exponent - 150).
  const std::uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
  const std::uint32_t shift = 126 - exponent;  // 14 .. 24
  const std::uint32_t half = 1U << (shift - 1);
  const std::uint32_t odd = (significand >> shift) & 1U;
  return static_cast<std::uint16_t>(sign | ((significand + half - 1 + odd) >> shift));
}

float f32_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0x1f) {
    const std::uint32_t quiet = fraction == 0 ? 0U : 0x400000U;
    return std::bit_cast<float>(sign | 0x7f800000U | quiet | (fraction << 13));
  }
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (fraction << 13));
  if (fraction == 0) return std::bit_cast<float>(sign);
  // Subnormal: fraction * 2^-24, normalised so that its leading one becomes the hidden bit.
  const auto lead = static_cast<std::uint32_t>(std::countl_zero(fraction)) - 21U;  // shifts until bit 10 is set
  fraction = (fraction << lead) & 0x3ffU;
  return std::bit_cast<float>(sign | ((113U - lead) << 23) | (fraction << 13));
}

}  // namespace dormouse::base
