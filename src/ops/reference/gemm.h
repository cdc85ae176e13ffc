// Matrix product; log_softmax.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/half.h"
#include "ops/ops.h"

namespace dormouse::ops::reference {

template <class T>
T round_operand(T x, Compute compute) {
  return compute == Compute::bf16 ? static_cast<T>(base::f32_from_bf16(base::bf16_from_f32(static_cast<float>(x)))) : x;
}

// Vectors [count,k] as Compute::i16 reads them. at(i, p): element p of vector i.
template <class T, class At>
std::vector<T> whole_numbers(std::int64_t count, std::int64_t k, const At& at) {
  std::vector<T> out;
  const std::int64_t blocks = (k + kI16Block - 1) / kI16Block, even = ((k + blocks - 1) / blocks + 1) / 2 * 2;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t first = 0; first < k; first += even) {
      const std::int64_t last = std::min(k, first + even);
      T squares = 0, most = 0;
      for (std::int64_t p = first; p < last; ++p) {
        squares += at(i, p) * at(i, p);
        most = std::max(most, std::abs(at(i, p)));
      }
      const T norm = std::sqrt(squares), scale = std::max(norm / static_cast<T>(kI16Norm), most / static_cast<T>(kI16Largest));
      for (std::int64_t p = first; p < last; ++p) {
        const bool finite = squares <= static_cast<T>(std::numeric_limits<float>::max());
        T x = finite ? T{0} : std::numeric_limits<T>::quiet_NaN();
        if (finite && norm >= static_cast<T>(kI16Smallest)) x = std::nearbyint(at(i, p) / scale) * scale;
        out.push_back(x);
      }
    }
  }
  return out;
}

template <class T>
void gemm(const Gemm& g, const T* a, const T* b, T* c) {
  if (g.whole()) {
    const auto rows =
        whole_numbers<T>(g.m, g.k, [&](std::int64_t i, std::int64_t p) { return g.transpose_a ? a[p * g.lda + i] : a[i * g.lda + p]; });
    const auto columns =
        whole_numbers<T>(g.n, g.k, [&](std::int64_t j, std::int64_t p) { return g.transpose_b ? b[j * g.ldb + p] : b[p * g.ldb + j]; });
    gemm<T>({.m = g.m, .n = g.n, .k = g.k, .lda = g.k, .ldb = g.k, .ldc = g.ldc, .transpose_b = true, .accumulate = g.accumulate},
            rows.data(), columns.data(), c);
    return;
  }
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
