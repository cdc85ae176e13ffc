// Sizes under real compressors at their strongest settings.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dormouse::evaluate {

struct Compressor {
  std::string_view name;
  bool slow = false;  // several seconds a megabyte
  // Compressed bytes of `text`; null when not built. Failure of the library: base::Error.
  std::uint64_t (*size)(std::span<const std::uint8_t> text);
};

// gzip -9, bzip2 -9, xz -9e, zstd -19 (128 MiB window, long-distance matching), brotli -q 11 (16 MiB window).
std::span<const Compressor> compressors();

}  // namespace dormouse::evaluate
