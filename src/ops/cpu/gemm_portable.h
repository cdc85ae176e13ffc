// The own GEMM: b packed once, then any rows of a against it. One accumulator per output element runs over k in blocks of
// kGemmDepth, so an element's bits depend on its row of a and its column of b alone, never on m, n, or the split over threads.
#pragma once

#include <cstdint>

namespace dormouse::ops::cpu {

inline constexpr std::int64_t kGemmDepth = 256;

// Stored a matrix with the distance between rows; transposed: element (i, j) is data[j*ld + i].
struct Operand {
  const float* data = nullptr;
  std::int64_t ld = 0;
  bool transposed = false;
};

// Floats needed for all of b [k,n] packed, at the current CPU level.
std::int64_t packed_size(std::int64_t k, std::int64_t n);

// Packs columns [column_begin, column_end) of b; column_begin must be a multiple of strip_width(), column_end too unless n.
void pack_columns(const Operand& b, std::int64_t k, std::int64_t n, std::int64_t column_begin, std::int64_t column_end, float* packed);
std::int64_t strip_width();

// c[0..m, column_begin..column_end) = or += a b on the calling thread. `a` holds rows 0..m. Same alignment of columns as above.
struct PackedGemm {
  std::int64_t m = 0, n = 0, k = 0, ldc = 0;
  std::int64_t column_begin = 0, column_end = 0;
  bool accumulate = false;
};
void gemm_packed(const PackedGemm&, const Operand& a, const float* packed, float* c);

}  // namespace dormouse::ops::cpu
