#include "base/hash.h"

#include <zlib.h>

namespace dormouse::base {

std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t crc) {
  if (bytes.empty()) return crc;  // zlib answers 0 for a null pointer, whatever the crc so far
  return static_cast<std::uint32_t>(::crc32_z(crc, bytes.data(), bytes.size()));
}

}  // namespace dormouse::base
