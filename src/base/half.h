// bf16 and f16 bit patterns <-> f32, round to nearest even, subnormals kept, NaN stays NaN (quiet).
#pragma once

#include <bit>
#include <cstdint>

namespace dormouse::base {

constexpr std::uint16_t bf16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float f32_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t f16_from_f32(float value);
float f32_from_f16(std::uint16_t bits);

}  // namespace dormouse::base
