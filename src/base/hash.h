// FNV-1a (64 bit) and CRC-32 (IEEE 802.3, as zlib).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dormouse::base {

// The offset basis of the n-gram keys: a historical constant of the format (the usual basis without its last digit).
inline constexpr std::uint64_t kKeyBasis = 1469598103934665603ULL;
inline constexpr std::uint64_t kFnvBasis = 14695981039346656037ULL;
inline constexpr std::uint64_t kFnvPrime = 1099511628211ULL;

constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t basis = kFnvBasis) {
  std::uint64_t hash = basis;
  for (const char c : text) {
    hash ^= static_cast<std::uint8_t>(c);
    hash *= kFnvPrime;
  }
  return hash;
}

// CRC-32 of `bytes`, continuing from `crc` (0 at the start).
std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t crc = 0);

}  // namespace dormouse::base
