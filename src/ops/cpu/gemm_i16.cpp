// Products of 16-bit whole numbers (VPDPWSSD, or VPMADDWD and an addition): more of them at once than of f32, except where f32 has AVX-512
// and these have not. Scales and rounding: ops/gemm.h. k is cut into equal blocks; sums of a block are exact, blocks are added in f32 in
// their order, so an element's bits depend on its row of a and its column of b alone (below the diagonal of a symmetric product: those of
// its image), and, as the norms of rows are summed in an order of their own there, on the kind of instruction. Speed, error, why:
// docs/decisions/0012-i16-products.md
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "ops/cpu/gemm_portable.h"
#include "ops/cpu/gemm_symmetric.h"
#include "ops/cpu/i16_avx2.h"
#include "ops/cpu/i16_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu_level.h"

#if defined(__x86_64__)
namespace dormouse::ops::cpu {
namespace {

constexpr std::int64_t kBlockRows = 96;                              // rows of a at once
constexpr std::int64_t kPackedRows = kBlockRows * (kRowStride + 1);  // pairs and scales

// A tile at c, or at an edge beside c, of which [rows, columns] are taken.
template <class K>
void tile(std::int64_t rows, std::int64_t columns, std::int64_t pairs, const Rows& a, const Pair* b, const float* b_scale, float* c,
          std::int64_t ldc, bool add) {
  constexpr std::int64_t kStrip = K::kStrip;
  if (rows == K::kRows && columns == kStrip) {
    K::micro(pairs, a, b, b_scale, c, ldc, add);
    return;
  }
  alignas(64) float whole[K::kRows * kStrip];
  K::micro(pairs, a, b, b_scale, whole, kStrip, false);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) c[i * ldc + j] = add ? c[i * ldc + j] + whole[i * kStrip + j] : whole[i * kStrip + j];
  }
}

// b packed: for each block of k, for each strip, its pairs; then, as floats, the scales of each block.
template <class K>
struct PackedColumns {
  Pair* data = nullptr;
  float* scales = nullptr;
  std::int64_t block_pairs = 0, padded = 0;  // of a whole block; n
  PackedColumns(const I16Blocks& blocks, std::int64_t n) : block_pairs(blocks.size / 2), padded(round_up(n, K::kStrip)) {
    const std::int64_t pairs = blocks.count * block_pairs * padded;
    data = static_cast<Pair*>(scratch_bytes(Slot::pack_b, static_cast<std::size_t>(pairs + blocks.count * padded) * sizeof(Pair)));
    scales = reinterpret_cast<float*>(data + pairs);
  }
  Pair* strip(std::int64_t block, std::int64_t j) const { return data + block * block_pairs * padded + j * block_pairs; }
  float* scale(std::int64_t block, std::int64_t j) const { return scales + block * padded + j; }
};

// Strips [first, last) of b.
template <class K>
void pack_strips(const Operand& b, const I16Blocks& blocks, std::int64_t n, std::int64_t first, std::int64_t last,
                 const PackedColumns<K>& to) {
  constexpr std::int64_t kStrip = K::kStrip;
  static_assert(kStrip == 2 * K::kLanes);
  for (std::int64_t block = 0; block < blocks.count; ++block) {
    const std::int64_t p = block * blocks.size, k = blocks.depth(block);
    for (std::int64_t s = first; s < last;) {
      const std::int64_t j = s * kStrip;
      if (b.transposed) {
        K::round_strip_transposed(b.data + j * b.ld + p, b.ld, std::min(kStrip, n - j), k, to.strip(block, j), to.scale(block, j));
        ++s;
        continue;
      }
      const float* from = b.data + p * b.ld + j;
      const auto place = [&](std::int64_t v) { return v / 2 * (to.strip(block, kStrip) - to.strip(block, 0)) + v % 2 * K::kLanes; };
      if (s + 2 <= last) {
        K::template round_columns<4>(from, b.ld, n - j, k, kStrip, to.strip(block, j), place, to.scale(block, j));
        s += 2;
      } else {
        K::template round_columns<2>(from, b.ld, n - j, k, kStrip, to.strip(block, j), place, to.scale(block, j));
        ++s;
      }
    }
  }
}

// Rows [row, row + rows) of a in block `block` of k, rows <= kBlockRows, packed into `space`.
template <class K>
Rows pack_rows(const Operand& a, const I16Blocks& blocks, std::int64_t block, std::int64_t row, std::int64_t rows, Pair* space) {
  auto* scales = reinterpret_cast<float*>(space + kBlockRows * kRowStride);
  const std::int64_t p = block * blocks.size, k = blocks.depth(block);
  if (a.transposed) {
    K::template round_columns<kBlockRows / K::kLanes>(
        a.data + p * a.ld + row, a.ld, rows, k, kBlockRows, space, [](std::int64_t v) { return K::kLanes * v; }, scales);
    return {space, 1, kBlockRows, scales};
  }
  K::round_rows(a.data + row * a.ld + p, a.ld, rows, k, space, scales);
  for (std::int64_t i = rows; i < round_up(rows, K::kRows); ++i) {
    std::memset(space + i * kRowStride, 0, static_cast<std::size_t>(pairs_of(k)) * sizeof(Pair));
    scales[i] = 0;
  }
  return {space, kRowStride, 1, scales};
}

// The part of c that `tiles` names, in tiles, on this thread.
template <class K>
void multiply(const Gemm& g, const I16Blocks& blocks, const Operand& a, const PackedColumns<K>& b, const GridPart& tiles, float* c) {
  constexpr std::int64_t kRows = K::kRows, kStrip = K::kStrip;
  auto* space = static_cast<Pair*>(scratch_bytes(Slot::pack_a, static_cast<std::size_t>(kPackedRows) * sizeof(Pair)));
  const std::int64_t row_end = std::min(g.m, tiles.row_end * kRows);
  for (std::int64_t row = tiles.row_begin * kRows; row < row_end; row += kBlockRows) {
    const std::int64_t rows = std::min(kBlockRows, row_end - row);
    for (std::int64_t block = 0; block < blocks.count; ++block) {
      const Rows packed = pack_rows<K>(a, blocks, block, row, rows, space);
      for (std::int64_t s = tiles.column_begin; s < tiles.column_end; ++s) {
        const std::int64_t j = s * kStrip;
        for (std::int64_t i = 0; i < rows; i += kRows) {
          tile<K>(std::min(kRows, rows - i), std::min(kStrip, g.n - j), pairs_of(blocks.depth(block)), packed.from(i), b.strip(block, j),
                  b.scale(block, j), c + (row + i) * g.ldc + j, g.ldc, g.accumulate || block > 0);
        }
      }
    }
  }
}

// A symmetric c: in every block of rows the strips from its diagonal on, and their mirror image.
template <class K>
void multiply_half(const Gemm& g, const I16Blocks& blocks, const Operand& a, const PackedColumns<K>& b, float* c) {
  constexpr std::int64_t kRows = K::kRows, kStrip = K::kStrip;
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

template <class K>
void whole_product(const Gemm& g, const float* a_data, const float* b_data, float* c) {
  static_assert(kBlockRows % K::kRows == 0 && kBlockRows % K::kLanes == 0);
  const Operand a{a_data, g.lda, g.transpose_a}, b{b_data, g.ldb, g.transpose_b};
  const I16Blocks blocks(g.k);
  const PackedColumns<K> packed(blocks, g.n);
  const std::int64_t strips = ceil_div(g.n, K::kStrip);
  for_ranges(strips, 1, g.n * g.k, [&](std::int64_t begin, std::int64_t end) { pack_strips<K>(b, blocks, g.n, begin, end, packed); });
  const std::int64_t tiles = ceil_div(g.m, K::kRows);
  if (g.symmetric) {
    multiply_half<K>(g, blocks, a, packed, c);
    return;
  }
  for_grid(tiles, strips, g.m * g.n * g.k, [&](const GridPart& part) { multiply<K>(g, blocks, a, packed, part, c); });
}

}  // namespace

void gemm_i16(const Gemm& g, const float* a, const float* b, float* c) {
  if (native_vnni()) {
    whole_product<I16Avx512>(g, a, b, c);
  } else if (native_i16()) {
    whole_product<I16Avx2>(g, a, b, c);
  } else {
    throw base::Error("products of 16-bit whole numbers need AVX2; use --compute f32 at level " + cpu_level());
  }
}

}  // namespace dormouse::ops::cpu

#else

namespace dormouse::ops::cpu {
void gemm_i16(const Gemm&, const float*, const float*, float*) {
  throw base::Error("products of 16-bit whole numbers need AVX2; use --compute f32");
}
}  // namespace dormouse::ops::cpu

#endif
