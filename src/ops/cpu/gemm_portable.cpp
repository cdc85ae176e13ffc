// Own GEMM, f32. Micro kernel of kRows x 2 vectors over packed panels: a as [k][kRows], b as [k][2 vectors], both zero-padded.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/gemm_portable.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "base/half.h"
#include "ops/cpu/gemm_portable.h"
#include "ops/cpu/gemm_symmetric.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Registers: 32 with AVX-512 (12 x 2 sums), 16 below it (6 x 2; 4 x 2).
#if HWY_TARGET <= HWY_AVX3
constexpr std::int64_t kRows = 12;
#elif HWY_TARGET == HWY_SCALAR
constexpr std::int64_t kRows = 4;
#else
constexpr std::int64_t kRows = 6;
#endif
constexpr std::int64_t kBlockRows = kRows * (96 / kRows);  // rows of a packed at once: 96 KiB

std::int64_t StripWidth() { return 2 * static_cast<std::int64_t>(hn::Lanes(D())); }

// to[p*width + i] = from[i*ld + p] for p < depth, i < rows; 0 for rows <= i < width.
HWY_INLINE void pack_transposing(const float* from, std::int64_t ld, std::int64_t rows, std::int64_t depth, std::int64_t width, float* to) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  const hn::CappedTag<std::uint64_t, 2> dw;
  const auto wide = [&](auto v) HWY_ATTR { return hn::BitCast(dw, v); };
  for (; i + 4 <= rows; i += 4) {
    const float* f = from + i * ld;
    std::int64_t p = 0;
    for (; p + 4 <= depth; p += 4) {
      const auto r0 = hn::LoadU(d, f + p);
      const auto r1 = hn::LoadU(d, f + ld + p);
      const auto r2 = hn::LoadU(d, f + 2 * ld + p);
      const auto r3 = hn::LoadU(d, f + 3 * ld + p);
      const auto low01 = wide(hn::InterleaveLower(d, r0, r1));  // 00 10 01 11
      const auto low23 = wide(hn::InterleaveLower(d, r2, r3));
      const auto high01 = wide(hn::InterleaveUpper(d, r0, r1));
      const auto high23 = wide(hn::InterleaveUpper(d, r2, r3));
      float* t = to + p * width + i;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, low01, low23)), d, t);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, low01, low23)), d, t + width);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, high01, high23)), d, t + 2 * width);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, high01, high23)), d, t + 3 * width);
    }
    for (; p < depth; ++p) {
      for (std::int64_t q = 0; q < 4; ++q) to[p * width + i + q] = f[q * ld + p];
    }
  }
#endif
  for (; i < rows; ++i) {
    for (std::int64_t p = 0; p < depth; ++p) to[p * width + i] = from[i * ld + p];
  }
  for (; i < width; ++i) {
    for (std::int64_t p = 0; p < depth; ++p) to[p * width + i] = 0;
  }
}

// to[p*width + i] = from[p*ld + i] for i < count; 0 for count <= i < width.
HWY_INLINE void pack_straight(const float* from, std::int64_t ld, std::int64_t count, std::int64_t depth, std::int64_t width, float* to) {
  if (count == kRows && width == kRows) {
    for (std::int64_t p = 0; p < depth; ++p) std::memcpy(to + p * kRows, from + p * ld, kRows * sizeof(float));
    return;
  }
  if (count == width && width == StripWidth()) {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t p = 0; p < depth; ++p) {
      hn::StoreU(hn::LoadU(d, from + p * ld), d, to + p * width);
      hn::StoreU(hn::LoadU(d, from + p * ld + lanes), d, to + p * width + lanes);
    }
    return;
  }
  for (std::int64_t p = 0; p < depth; ++p) {
    std::int64_t i = 0;
    for (; i < count; ++i) to[p * width + i] = from[p * ld + i];
    for (; i < width; ++i) to[p * width + i] = 0;
  }
}

// b packed: for each k block, for each strip of columns, [depth][strip width].
void PackColumns(const Operand& b, std::int64_t k, std::int64_t n, std::int64_t column_begin, std::int64_t column_end, float* packed) {
  const std::int64_t width = StripWidth();
  const std::int64_t padded = round_up(n, width);
  for (std::int64_t p = 0; p < k; p += kGemmDepth) {
    const std::int64_t depth = std::min(kGemmDepth, k - p);
    for (std::int64_t j = column_begin; j < column_end; j += width) {
      const std::int64_t count = std::min(width, n - j);
      float* to = packed + p * padded + j * depth;
      if (b.transposed) {
        pack_transposing(b.data + j * b.ld + p, b.ld, count, depth, width, to);
      } else {
        pack_straight(b.data + p * b.ld + j, b.ld, count, depth, width, to);
      }
    }
  }
}

// c [kRows, 2 vectors] (+)= a b over `depth`. a [depth][kRows] packed; rows of b `ldb` apart.
HWY_INLINE void micro(std::int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t ldb, float* c,
                      std::int64_t ldc, bool add) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sum0[kRows];
  V sum1[kRows];
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kRows; ++i) sum0[i] = sum1[i] = hn::Zero(d);
  for (std::int64_t p = 0; p < depth; ++p) {
    const V b0 = hn::LoadU(d, b);
    const V b1 = hn::LoadU(d, b + lanes);
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < kRows; ++i) {
      const V x = hn::Set(d, a[i]);
      sum0[i] = hn::MulAdd(x, b0, sum0[i]);
      sum1[i] = hn::MulAdd(x, b1, sum1[i]);
    }
    a += kRows;
    b += ldb;
  }
  if (add) {
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < kRows; ++i) {
      hn::StoreU(hn::Add(hn::LoadU(d, c + i * ldc), sum0[i]), d, c + i * ldc);
      hn::StoreU(hn::Add(hn::LoadU(d, c + i * ldc + lanes), sum1[i]), d, c + i * ldc + lanes);
    }
  } else {
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < kRows; ++i) {
      hn::StoreU(sum0[i], d, c + i * ldc);
      hn::StoreU(sum1[i], d, c + i * ldc + lanes);
    }
  }
}

// Calls kernel(c, ldc, add) on c itself, or at an edge through a whole tile of which [rows, columns] are copied.
template <class Kernel>
HWY_INLINE void with_edges(std::int64_t rows, std::int64_t tile_rows, std::int64_t columns, float* c, std::int64_t ldc, bool add,
                           const Kernel& kernel) {
  const std::int64_t width = StripWidth();
  if (rows == tile_rows && columns == width) {
    kernel(c, ldc, add);
    return;
  }
  HWY_ALIGN float tile[kRows * 2 * HWY_LANES(float)];
  kernel(tile, width, false);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) c[i * ldc + j] = add ? c[i * ldc + j] + tile[i * width + j] : tile[i * width + j];
  }
}

void GemmPacked(const PackedGemm& g, const Operand& a, const float* packed, float* c, float* pack_a) {
  const std::int64_t width = StripWidth();
  const std::int64_t padded = round_up(g.n, width);
  for (std::int64_t p = 0; p < g.k; p += kGemmDepth) {
    const std::int64_t depth = std::min(kGemmDepth, g.k - p);
    const bool add = g.accumulate || p > 0;
    for (std::int64_t row = 0; row < g.m; row += kBlockRows) {
      const std::int64_t block = std::min(kBlockRows, g.m - row);
      for (std::int64_t i = 0; i < block; i += kRows) {
        const std::int64_t count = std::min(kRows, block - i);
        if (a.transposed) {
          pack_straight(a.data + p * a.ld + row + i, a.ld, count, depth, kRows, pack_a + i * depth);
        } else {
          pack_transposing(a.data + (row + i) * a.ld + p, a.ld, count, depth, kRows, pack_a + i * depth);
        }
      }
      for (std::int64_t j = g.column_begin; j < g.column_end; j += width) {
        const float* strip = packed + p * padded + j * depth;
        for (std::int64_t i = 0; i < block; i += kRows) {
          with_edges(std::min(kRows, block - i), kRows, std::min(width, g.n - j), c + (row + i) * g.ldc + j, g.ldc, add,
                     [&](float* to, std::int64_t ldc, bool add_to)
                         HWY_ATTR { micro(depth, pack_a + i * depth, strip, width, to, ldc, add_to); });
        }
      }
    }
  }
}

std::int64_t PackedRowsSize() { return kBlockRows * kGemmDepth; }

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {

HWY_EXPORT(StripWidth);
HWY_EXPORT(PackColumns);
HWY_EXPORT(GemmPacked);
HWY_EXPORT(PackedRowsSize);

namespace {

void clear(const Gemm& g, float* c) {
  for (std::int64_t i = 0; i < g.m; ++i) std::memset(c + i * g.ldc, 0, static_cast<std::size_t>(g.n) * sizeof(float));
}

// A copy with every element rounded to bf16, dense.
const float* rounded(Slot slot, const float* from, std::int64_t rows, std::int64_t cols, std::int64_t ld) {
  float* to = scratch(slot, rows * cols);
  for_ranges(rows, 4, rows * cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) to[i * cols + j] = base::f32_from_bf16(base::bf16_from_f32(from[i * ld + j]));
    }
  });
  return to;
}

}  // namespace

std::int64_t strip_width() { return HWY_DYNAMIC_DISPATCH(StripWidth)(); }

std::int64_t packed_size(std::int64_t k, std::int64_t n) { return k * round_up(n, strip_width()); }

void pack_columns(const Operand& b, std::int64_t k, std::int64_t n, std::int64_t column_begin, std::int64_t column_end, float* packed) {
  HWY_DYNAMIC_DISPATCH(PackColumns)(b, k, n, column_begin, column_end, packed);
}

void gemm_packed(const PackedGemm& g, const Operand& a, const float* packed, float* c) {
  float* pack_a = scratch(Slot::pack_a, HWY_DYNAMIC_DISPATCH(PackedRowsSize)());
  HWY_DYNAMIC_DISPATCH(GemmPacked)(g, a, packed, c, pack_a);
}

void gemm_portable(const Gemm& g, const float* a_data, const float* b_data, float* c) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    if (!g.accumulate) clear(g, c);
    return;
  }
  if (g.whole()) {
    gemm_i16(g, a_data, b_data, c);
    return;
  }
  if (g.symmetric) {
    gemm_in_half(gemm_portable, g, a_data, b_data, c);
    return;
  }
  Operand a{a_data, g.lda, g.transpose_a};
  Operand b{b_data, g.ldb, g.transpose_b};
  if (g.compute == Compute::bf16) {
    const std::int64_t a_cols = g.transpose_a ? g.m : g.k;
    const std::int64_t b_cols = g.transpose_b ? g.k : g.n;
    a = {rounded(Slot::convert_a, a_data, g.transpose_a ? g.k : g.m, a_cols, g.lda), a_cols, g.transpose_a};
    b = {rounded(Slot::convert_b, b_data, g.transpose_b ? g.n : g.k, b_cols, g.ldb), b_cols, g.transpose_b};
  }
  const std::int64_t width = strip_width();
  float* packed = scratch(Slot::pack_b, packed_size(g.k, g.n));
  for_ranges(g.n, width, g.n * g.k, [&](std::int64_t begin, std::int64_t end) { pack_columns(b, g.k, g.n, begin, end, packed); });
  constexpr std::int64_t kTileRows = 12;
  for_grid(ceil_div(g.m, kTileRows), ceil_div(g.n, width), g.m * g.n * g.k, [&](const GridPart& p) {
    const std::int64_t row_begin = p.row_begin * kTileRows, row_end = std::min(g.m, p.row_end * kTileRows);
    const PackedGemm part{row_end - row_begin, g.n, g.k, g.ldc, p.column_begin * width, std::min(g.n, p.column_end * width), g.accumulate};
    gemm_packed(part, {a.data + (a.transposed ? row_begin : row_begin * a.ld), a.ld, a.transposed}, packed, c + row_begin * g.ldc);
  });
}

}  // namespace dormouse::ops::cpu
#endif
