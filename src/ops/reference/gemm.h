// Matrix product; log_softmax.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/half.h"
#include "ops/ops.h"

namespace dormouse::ops::reference {

template <class T>
T round_operand(T x, Compute compute) {
  return compute == Compute::f32 ? x : static_cast<T>(base::f32_from_bf16(base::bf16_from_f32(static_cast<float>(x))));
}

template <class T>
void gemm(const Gemm& g, const T* a, const T* b, T* c) {
  const auto at = [&](std::int64_t i, std::int64_t p) {
    return round_operand(g.transpose_a ? a[p * g.lda + i] : a[i * g.lda + p], g.compute);
  };
  const auto bt = [&](std::int64_t p, std::int64_t j) {
    return round_operand(g.transpose_b ? b[j * g.ldb + p] : b[p * g.ldb + j], g.compute);
  };
  for (std::int64_t i = 0; i < g.m; ++i) {
    T* row = c + i * g.ldc;
    if (!g.accumulate) std::fill(row, row + g.n, T{0});
    for (std::int64_t p = 0; p < g.k; ++p) {
      const T x = at(i, p);
      for (std::int64_t j = 0; j < g.n; ++j) row[j] += x * bt(p, j);
    }
  }
}

template <class T>
T log_sum_exp(std::int64_t d, const T* x) {
  const T top = *std::max_element(x, x + d);
  T sum = 0;
  for (std::int64_t j = 0; j < d; ++j) sum += std::exp(x[j] - top);
  return top + std::log(sum);
}

template <class T>
void log_softmax(std::int64_t rows, std::int64_t d, const T* x, T* y) {
  if (d == 0) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    const T lse = log_sum_exp(d, x + r * d);
    for (std::int64_t j = 0; j < d; ++j) y[r * d + j] = x[r * d + j] - lse;
  }
}

}  // namespace dormouse::ops::reference
