// What the kernels of gemm_i16.cpp share: one for every kind of instruction. A kernel K has
//   kLanes                                   32-bit lanes of a vector
//   kRows, kStrip                            of a tile of sums
//   round_rows, round_columns,               floats to whole numbers and their scales; the last pair of a row is filled with 0, and so are
//   round_strip_transposed                   columns that do not exist
//   micro                                    a tile
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/gemm.h"

namespace dormouse::ops::cpu {

using Pair = std::int32_t;  // two neighbours along k: the lower half holds the first

constexpr std::int64_t kRowStride = kI16Block / 2 + 16;  // pairs; not a power of two: rows in other cache sets
inline std::int64_t pairs_of(std::int64_t k) { return (k + 1) / 2; }

// How to scale a vector.
struct Scale {
  float scale = 0, inverse = 0;
};
inline Scale scale_of(float squares, float most) {
  const float norm = std::sqrt(squares);
  if (!(norm < HUGE_VALF)) return {NAN, 0};
  if (norm < kI16Smallest) return {};
  const float s = std::max(norm * (1 / kI16Norm), most * (1 / kI16Largest));
  return {s, 1 / s};
}

// Packed rows of a: pair p of row i at data[i * row + p * pair].
struct Rows {
  const Pair* data = nullptr;
  std::int64_t row = 0, pair = 0;
  const float* scale = nullptr;
  Rows from(std::int64_t i) const { return {data + i * row, row, pair, scale + i}; }
};

}  // namespace dormouse::ops::cpu
