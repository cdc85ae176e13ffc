// What the kernels of narrow products share (ops/narrow.h). One call: strips [first, last) of one matrix, all rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/narrow.h"

namespace dormouse::ops::cpu {

// Rows of x in whole numbers of two digits: x[r,i] ~ scale[r] * (256 high[r,i] + low[r,i]); zero from k to `padded`, a multiple of 16.
struct Digits {
  std::int64_t rows = 0, padded = 0;
  const std::int8_t *high = nullptr, *low = nullptr;  // [rows, padded]
  const float* scale = nullptr;                       // [rows]
  const std::int32_t *sum_high = nullptr, *sum_low = nullptr;
};

// 512 products of 128 and a whole number of x, 32,512 at most, stay below 2^31: so does every sum of codes on its way.
inline constexpr std::int64_t kCodeBlock = 512;
constexpr std::int64_t code_blocks(std::int64_t k) { return (k + kCodeBlock - 1) / kCodeBlock; }

// Rows of x in whole numbers, padded with 0. For bf16 in the blocks of I16Blocks(k): x[r,i] ~ scale[r, block of i] * whole[r,i]. For codes
// with one scale a row, and of each four neighbours the middle two exchanged.
struct Wholes {
  std::int64_t rows = 0, padded = 0;
  const std::int16_t* whole = nullptr;  // [rows, padded]
  const float* scale = nullptr;         // bf16: [rows, blocks]; codes: [rows]
  const std::int32_t* sum = nullptr;    // codes: of each kCodeBlock whole numbers, [rows, code_blocks(k)]; bf16: null
};

struct StripRange {
  const NarrowMatrix* w = nullptr;
  std::int64_t first = 0, last = 0;
  float* y = nullptr;  // [rows, n]
};

// How a kernel goes through strips and rows. It has
//   pass<kRows, kStrips>(range, strip, row)  strips [strip, strip + kStrips) of rows [row, row + kRows)
//   kRowsTogether                            the most rows of a pass
//   strips_of(rows)                          strips of a pass of so many: fewer rows, more columns, for as many sums under way
// Rows [row, rows) in groups of kRows, then the rest in smaller ones.
template <int kRows, class Kernel>
void pass_rows(const Kernel& kernel, const StripRange& range, std::int64_t row, std::int64_t rows) {
  constexpr int kStrips = Kernel::strips_of(kRows);
  for (; row + kRows <= rows; row += kRows) {
    std::int64_t strip = range.first;
    for (; strip + kStrips <= range.last; strip += kStrips) kernel.template pass<kRows, kStrips>(range, strip, row);
    if constexpr (kStrips > 1) {
      for (; strip < range.last; ++strip) kernel.template pass<kRows, 1>(range, strip, row);
    }
  }
  if constexpr (kRows > 1) pass_rows<kRows == 6 ? 4 : kRows / 2>(kernel, range, row, rows);
}

// All of range, few strips at a time, so that they stay in the cache while all rows pass.
template <class Kernel>
void pass_all(const Kernel& kernel, StripRange range, std::int64_t rows) {
  constexpr int kStrips = Kernel::strips_of(1);
  const std::int64_t last = range.last;
  for (; range.first < last; range.first += kStrips) {
    range.last = std::min<std::int64_t>(last, range.first + kStrips);
    pass_rows<Kernel::kRowsTogether>(kernel, range, 0, rows);
  }
}

// int8, ternary. y = (256 (h - o sum_high) + l - o sum_low) * (scale * scales[j]) with h, l the sums of stored codes, o what was added to
// them; the sum is exact, and rounded to f32 once. x86_dot.cpp: for native_vnni(); narrow.cpp has the other CPUs'. All give the same bits.
void dot_strips_vnni(const StripRange& range, const Digits& x);

// bf16. y = the sum over blocks of (sum of products of wholes) * (scale * scales[j]). x86_dot.cpp: for native_vnni(). Sums of
// a block are exact everywhere, those of blocks and the norms of x are not the same bits at every CPU level.
void whole_strips_vnni(const StripRange& range, const Wholes& x);

}  // namespace dormouse::ops::cpu
