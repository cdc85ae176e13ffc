// Products of 16-bit whole numbers (VPDPWSSD): an instruction multiplies and adds twice as many of them as of f32. Scales and rounding:
// ops/gemm.h. k is cut into equal blocks; sums of a block are exact, blocks are added in f32 in their order, so an element's
// bits depend on its row of a and its column of b alone (below the diagonal of a symmetric product: those of its image). Speed, error, why:
// docs/decisions/0012-i16-products.md
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "ops/cpu/gemm_portable.h"
#include "ops/cpu/gemm_symmetric.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vnni.h"
#include "ops/cpu_level.h"

#if defined(__x86_64__)
namespace dormouse::ops::cpu {
namespace {

using Pair = std::int32_t;  // two neighbours along k: the lower half holds the first

constexpr std::int64_t kRows = 12;  // of a tile: 12 x 2 sums, their two columns and one factor are 27 of 32 registers
constexpr std::int64_t kStrip = 32;
constexpr std::int64_t kBlockRows = 8 * kRows;                       // rows of a at once
constexpr std::int64_t kRowStride = kI16Block / 2 + 16;              // pairs; not a power of two: rows in other cache sets
constexpr std::int64_t kPackedRows = kBlockRows * (kRowStride + 1);  // pairs and scales
std::int64_t pairs_of(std::int64_t k) { return ceil_div(k, 2); }

DORMOUSE_VNNI __m512i round_scaled(__m512 x, __m512 inverse) { return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse)); }

// How to scale a vector; alone, and sixteen side by side.
struct Scale {
  float scale = 0, inverse = 0;
};
Scale scale_of(float squares, float most) {
  const float norm = std::sqrt(squares);
  if (!(norm < HUGE_VALF)) return {NAN, 0};
  if (norm < kI16Smallest) return {};
  const float s = std::max(norm * (1 / kI16Norm), most * (1 / kI16Largest));
  return {s, 1 / s};
}
DORMOUSE_VNNI void scales_of(__m512 squares, __m512 most, __m512* scale, __m512* inverse) {
  const __m512 norm = _mm512_sqrt_ps(squares);
  const __m512 s = _mm512_max_ps(_mm512_mul_ps(norm, _mm512_set1_ps(1 / kI16Norm)), _mm512_mul_ps(most, _mm512_set1_ps(1 / kI16Largest)));
  const __mmask16 some = _mm512_cmp_ps_mask(norm, _mm512_set1_ps(kI16Smallest), _CMP_GE_OQ);
  const __mmask16 finite = _mm512_cmp_ps_mask(norm, _mm512_set1_ps(HUGE_VALF), _CMP_LT_OQ);
  *scale = _mm512_mask_mov_ps(_mm512_maskz_mov_ps(some, s), static_cast<__mmask16>(~finite), _mm512_set1_ps(NAN));
  *inverse = _mm512_maskz_div_ps(some & finite, _mm512_set1_ps(1.0F), s);
}

// Rows whose elements along k are neighbours: `rows` of them, k elements, to kRowStride pairs apart, the last pair filled with 0.
DORMOUSE_VNNI void round_rows(const float* from, std::int64_t ld, std::int64_t rows, std::int64_t k, Pair* to, float* scale) {
  const std::int64_t whole = k / 32 * 32;
  const __mmask16 tail[2] = {first_lanes(k - whole), first_lanes(k - whole - 16)};
  const __mmask16 stored[2] = {first_lanes(k - whole + k % 2), first_lanes(k - whole - 16 + k % 2)};
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = from + r * ld;
    __m512 squares[2], most[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512 v = _mm512_maskz_loadu_ps(tail[half], x + whole + 16 * half);
      squares[half] = _mm512_mul_ps(v, v);
      most[half] = _mm512_abs_ps(v);
    }
    for (std::int64_t p = 0; p < whole; p += 32) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512 v = _mm512_loadu_ps(x + p + 16 * half);
        squares[half] = _mm512_fmadd_ps(v, v, squares[half]);
        most[half] = _mm512_max_ps(most[half], _mm512_abs_ps(v));
      }
    }
    const Scale s =
        scale_of(_mm512_reduce_add_ps(_mm512_add_ps(squares[0], squares[1])), _mm512_reduce_max_ps(_mm512_max_ps(most[0], most[1])));
    scale[r] = s.scale;
    const __m512 inverse = _mm512_set1_ps(s.inverse);
    auto* out = reinterpret_cast<std::int16_t*>(to + r * kRowStride);
    for (std::int64_t p = 0; p < whole; p += 16) {
      const __m512i q = round_scaled(_mm512_loadu_ps(x + p), inverse);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + p), _mm512_cvtsepi32_epi16(q));
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i q = round_scaled(_mm512_maskz_loadu_ps(tail[half], x + whole + 16 * half), inverse);
      _mm256_mask_storeu_epi16(out + whole + 16 * half, stored[half], _mm512_cvtsepi32_epi16(q));
    }
  }
}

// Columns whose elements along k are `ld` apart, for kVectors * 16 columns of which `columns` exist: pair p of column 16 v + i goes to
// to[p * pair_stride + place(v) + i]. Zeros beyond `columns`.
template <int kVectors, class Place>
DORMOUSE_VNNI void round_columns(const float* from, std::int64_t ld, std::int64_t columns, std::int64_t k, std::int64_t pair_stride,
                                 Pair* to, const Place& place, float* scale) {
  __mmask16 lanes[kVectors];
  __m512 squares[kVectors], most[kVectors], inverse[kVectors];
#pragma GCC unroll 6
  for (int v = 0; v < kVectors; ++v) {
    lanes[v] = first_lanes(columns - 16 * v);
    squares[v] = most[v] = _mm512_setzero_ps();
  }
  for (std::int64_t p = 0; p < k; ++p) {
#pragma GCC unroll 6
    for (int v = 0; v < kVectors; ++v) {
      const __m512 x = _mm512_maskz_loadu_ps(lanes[v], from + p * ld + 16 * v);
      squares[v] = _mm512_fmadd_ps(x, x, squares[v]);
      most[v] = _mm512_max_ps(most[v], _mm512_abs_ps(x));
    }
  }
#pragma GCC unroll 6
  for (int v = 0; v < kVectors; ++v) {
    __m512 s;
    scales_of(squares[v], most[v], &s, &inverse[v]);
    _mm512_storeu_ps(scale + 16 * v, s);
  }
  for (std::int64_t p = 0; p < k; p += 2) {
#pragma GCC unroll 6
    for (int v = 0; v < kVectors; ++v) {
      const float* x = from + p * ld + 16 * v;
      const __m512i low = round_scaled(_mm512_maskz_loadu_ps(lanes[v], x), inverse[v]);
      const __m512i high = round_scaled(_mm512_maskz_loadu_ps(p + 1 < k ? lanes[v] : __mmask16{0}, x + ld), inverse[v]);
      _mm512_storeu_si512(to + p / 2 * pair_stride + place(v), _mm512_mask_blend_epi16(0xaaaaaaaaU, low, _mm512_slli_epi32(high, 16)));
    }
  }
}

// One strip of b from rows along k: through whole numbers, then turned.
DORMOUSE_VNNI void round_strip_transposed(const float* from, std::int64_t ld, std::int64_t columns, std::int64_t k, Pair* to,
                                          float* scale) {
  alignas(64) Pair rows[kStrip * kRowStride];
  round_rows(from, ld, columns, k, rows, scale);
  for (std::int64_t i = columns; i < kStrip; ++i) scale[i] = 0;
  const __m512i apart = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                           _mm512_set1_epi32(static_cast<int>(kRowStride)));
  for (std::int64_t p = 0; p < pairs_of(k); ++p) {
    for (std::int64_t i = 0; i < kStrip; i += 16) {
      const __m512i v = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), first_lanes(columns - i), apart, rows + i * kRowStride + p, 4);
      _mm512_storeu_si512(to + p * kStrip + i, v);
    }
  }
}

// Packed rows of a: pair p of row i at data[i * row + p * pair].
struct Rows {
  const Pair* data = nullptr;
  std::int64_t row = 0, pair = 0;
  const float* scale = nullptr;
  Rows from(std::int64_t i) const { return {data + i * row, row, pair, scale + i}; }
};

// c [kRows, kStrip] = or += a b over `pairs`.
DORMOUSE_VNNI void micro(std::int64_t pairs, const Rows& a, const Pair* b, const float* b_scale, float* c, std::int64_t ldc, bool add) {
  __m512i sum0[kRows], sum1[kRows];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) sum0[i] = sum1[i] = _mm512_setzero_si512();
  const std::int64_t row = a.row, pair = a.pair;
  const Pair *a0 = a.data, *a3 = a0 + 3 * row, *a6 = a3 + 3 * row, *a9 = a6 + 3 * row;
  for (std::int64_t p = 0; p < pairs; ++p) {
    const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const Pair* at = (i < 3 ? a0 : i < 6 ? a3 : i < 9 ? a6 : a9) + i % 3 * row;
      const __m512i x = _mm512_set1_epi32(*at);
      add_pair_products(sum0[i], x, b0);
      add_pair_products(sum1[i], x, b1);
    }
    a0 += pair, a3 += pair, a6 += pair, a9 += pair;
    b += kStrip;
  }
  const __m512 scale0 = _mm512_loadu_ps(b_scale), scale1 = _mm512_loadu_ps(b_scale + 16);
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    const __m512 scale = _mm512_set1_ps(a.scale[i]);
    __m512 y0 = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum0[i]), scale), scale0);
    __m512 y1 = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum1[i]), scale), scale1);
    float* to = c + i * ldc;
    if (add) {
      y0 = _mm512_add_ps(_mm512_loadu_ps(to), y0);
      y1 = _mm512_add_ps(_mm512_loadu_ps(to + 16), y1);
    }
    _mm512_storeu_ps(to, y0);
    _mm512_storeu_ps(to + 16, y1);
  }
}

// A tile at c, or at an edge beside c, of which [rows, columns] are taken.
DORMOUSE_VNNI void tile(std::int64_t rows, std::int64_t columns, std::int64_t pairs, const Rows& a, const Pair* b, const float* b_scale,
                        float* c, std::int64_t ldc, bool add) {
  if (rows == kRows && columns == kStrip) {
    micro(pairs, a, b, b_scale, c, ldc, add);
    return;
  }
  alignas(64) float whole[kRows * kStrip];
  micro(pairs, a, b, b_scale, whole, kStrip, false);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) c[i * ldc + j] = add ? c[i * ldc + j] + whole[i * kStrip + j] : whole[i * kStrip + j];
  }
}

// b packed: for each block of k, for each strip, its pairs; then, as floats, the scales of each block.
struct PackedColumns {
  Pair* data = nullptr;
  float* scales = nullptr;
  std::int64_t block_pairs = 0, padded = 0;  // of a whole block; n
  PackedColumns(const I16Blocks& blocks, std::int64_t n) : block_pairs(blocks.size / 2), padded(round_up(n, kStrip)) {
    const std::int64_t pairs = blocks.count * block_pairs * padded;
    data = static_cast<Pair*>(scratch_bytes(Slot::pack_b, static_cast<std::size_t>(pairs + blocks.count * padded) * sizeof(Pair)));
    scales = reinterpret_cast<float*>(data + pairs);
  }
  Pair* strip(std::int64_t block, std::int64_t j) const { return data + block * block_pairs * padded + j * block_pairs; }
  float* scale(std::int64_t block, std::int64_t j) const { return scales + block * padded + j; }
};

// Strips [first, last) of b.
DORMOUSE_VNNI void pack_strips(const Operand& b, const I16Blocks& blocks, std::int64_t n, std::int64_t first, std::int64_t last,
                               const PackedColumns& to) {
  for (std::int64_t block = 0; block < blocks.count; ++block) {
    const std::int64_t p = block * blocks.size, k = blocks.depth(block);
    for (std::int64_t s = first; s < last;) {
      const std::int64_t j = s * kStrip;
      if (b.transposed) {
        round_strip_transposed(b.data + j * b.ld + p, b.ld, std::min(kStrip, n - j), k, to.strip(block, j), to.scale(block, j));
        ++s;
        continue;
      }
      const float* from = b.data + p * b.ld + j;
      const auto place = [&](std::int64_t v) { return v / 2 * (to.strip(block, kStrip) - to.strip(block, 0)) + v % 2 * 16; };
      if (s + 2 <= last) {
        round_columns<4>(from, b.ld, n - j, k, kStrip, to.strip(block, j), place, to.scale(block, j));
        s += 2;
      } else {
        round_columns<2>(from, b.ld, n - j, k, kStrip, to.strip(block, j), place, to.scale(block, j));
        ++s;
      }
    }
  }
}

// Rows [row, row + rows) of a in block `block` of k, rows <= kBlockRows, packed into `space`.
Rows pack_rows(const Operand& a, const I16Blocks& blocks, std::int64_t block, std::int64_t row, std::int64_t rows, Pair* space) {
  auto* scales = reinterpret_cast<float*>(space + kBlockRows * kRowStride);
  const std::int64_t p = block * blocks.size, k = blocks.depth(block);
  if (a.transposed) {
    round_columns<kBlockRows / 16>(
        a.data + p * a.ld + row, a.ld, rows, k, kBlockRows, space, [](std::int64_t v) { return 16 * v; }, scales);
    return {space, 1, kBlockRows, scales};
  }
  round_rows(a.data + row * a.ld + p, a.ld, rows, k, space, scales);
  for (std::int64_t i = rows; i < round_up(rows, kRows); ++i) {
    std::memset(space + i * kRowStride, 0, static_cast<std::size_t>(pairs_of(k)) * sizeof(Pair));
    scales[i] = 0;
  }
  return {space, kRowStride, 1, scales};
}

// The part of c that `tiles` names, in tiles, on this thread.
void multiply(const Gemm& g, const I16Blocks& blocks, const Operand& a, const PackedColumns& b, const GridPart& tiles, float* c) {
  auto* space = static_cast<Pair*>(scratch_bytes(Slot::pack_a, static_cast<std::size_t>(kPackedRows) * sizeof(Pair)));
  const std::int64_t row_end = std::min(g.m, tiles.row_end * kRows);
  for (std::int64_t row = tiles.row_begin * kRows; row < row_end; row += kBlockRows) {
    const std::int64_t rows = std::min(kBlockRows, row_end - row);
    for (std::int64_t block = 0; block < blocks.count; ++block) {
      const Rows packed = pack_rows(a, blocks, block, row, rows, space);
      for (std::int64_t s = tiles.column_begin; s < tiles.column_end; ++s) {
        const std::int64_t j = s * kStrip;
        for (std::int64_t i = 0; i < rows; i += kRows) {
          tile(std::min(kRows, rows - i), std::min(kStrip, g.n - j), pairs_of(blocks.depth(block)), packed.from(i), b.strip(block, j),
               b.scale(block, j), c + (row + i) * g.ldc + j, g.ldc, g.accumulate || block > 0);
        }
      }
    }
  }
}

// A symmetric c: in every block of rows the strips from its diagonal on, and their mirror image.
void multiply_half(const Gemm& g, const I16Blocks& blocks, const Operand& a, const PackedColumns& b, float* c) {
  // No thread writes what another writes: a block begins at its diagonal, and the strips that cross it stay in one part.
  static_assert(kBlockRows % kStrip == 0);
  constexpr std::int64_t kCrossing = kBlockRows / kStrip;
  const std::int64_t strips = ceil_div(g.n, kStrip), count = ceil_div(g.m, kBlockRows);
  on_team([&](std::int64_t id, std::int64_t team) {
    const std::int64_t parts = ceil_div(2 * team, count);  // of a block
    for (std::int64_t unit = 0; unit < count * parts; ++unit) {
      // Blocks further down are shorter, so the order of the threads turns round with every round.
      const std::int64_t place = unit % (2 * team);
      if ((place < team ? place : 2 * team - 1 - place) != id) continue;
      const std::int64_t first = unit / parts * kBlockRows, last = std::min(g.m, first + kBlockRows), part = unit % parts;
      const std::int64_t diagonal = first / kStrip, others = std::max<std::int64_t>(0, strips - diagonal - kCrossing);
      const auto cut = [&](std::int64_t i) { return i == 0 ? diagonal : std::min(strips, diagonal + kCrossing + others * i / parts); };
      const std::int64_t begin = cut(part), end = cut(part + 1);
      if (begin == end) continue;  // else it would round the rows for nothing
      multiply(g, blocks, a, b, {first / kRows, ceil_div(last, kRows), begin, end}, c);
      mirror(first, last, begin * kStrip, std::min(g.m, end * kStrip), g.ldc, c);
    }
  });
}

}  // namespace

void gemm_i16(const Gemm& g, const float* a_data, const float* b_data, float* c) {
  if (!native_vnni()) throw base::Error("products of 16-bit whole numbers need AVX512_VNNI; use --compute f32 at level " + cpu_level());
  const Operand a{a_data, g.lda, g.transpose_a}, b{b_data, g.ldb, g.transpose_b};
  const I16Blocks blocks(g.k);
  const PackedColumns packed(blocks, g.n);
  const std::int64_t strips = ceil_div(g.n, kStrip);
  for_ranges(strips, 1, g.n * g.k, [&](std::int64_t begin, std::int64_t end) { pack_strips(b, blocks, g.n, begin, end, packed); });
  const std::int64_t tiles = ceil_div(g.m, kRows);
  if (g.symmetric) {
    multiply_half(g, blocks, a, packed, c);
    return;
  }
  for_grid(tiles, strips, g.m * g.n * g.k, [&](const GridPart& part) { multiply(g, blocks, a, packed, part, c); });
}

}  // namespace dormouse::ops::cpu

#else

namespace dormouse::ops::cpu {
void gemm_i16(const Gemm&, const float*, const float*, float*) {
  throw base::Error("products of 16-bit whole numbers need AVX512_VNNI; use --compute f32");
}
}  // namespace dormouse::ops::cpu

#endif
