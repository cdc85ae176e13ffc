#include "ops/cpu/gemm_symmetric.h"

#include <algorithm>

namespace dormouse::ops::cpu {

// In tiles that a cache holds both ways.
void mirror(std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end, std::int64_t ldc, float* c) {
  constexpr std::int64_t kTile = 16;
  for (std::int64_t columns = std::max(begin, first); columns < end; columns += kTile) {
    const std::int64_t column_end = std::min(columns + kTile, end);
    for (std::int64_t rows = first; rows < std::min(last, column_end); rows += kTile) {
      for (std::int64_t j = columns; j < column_end; ++j) {
        for (std::int64_t i = rows; i < std::min({rows + kTile, last, j}); ++i) c[j * ldc + i] = c[i * ldc + j];
      }
    }
  }
}

void gemm_in_half(void (*gemm)(const Gemm&, const float* a, const float* b, float* c), const Gemm& g, const float* a, const float* b,
                  float* c) {
  constexpr std::int64_t kBlock = 128;  // rows
  Gemm rows = g;
  rows.symmetric = false;
  for (std::int64_t first = 0; first < g.m; first += kBlock) {
    rows.m = std::min(kBlock, g.m - first);
    rows.n = g.n - first;
    gemm(rows, a + first * (g.transpose_a ? 1 : g.lda), b + first * (g.transpose_b ? g.ldb : 1), c + first * g.ldc + first);
  }
  mirror(0, g.m, 0, g.m, g.ldc, c);
}

}  // namespace dormouse::ops::cpu
