// gather, add_row, axpy, silu, sigmoid, scale_columns.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/ops.h"

namespace dormouse::ops::reference {

template <class T>
void gather(std::int64_t rows, std::int64_t d, const std::uint32_t* index, const T* table, T* y) {
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(table + index[r] * d, d, y + r * d);
}

template <class T>
void gather_backward(std::int64_t rows, std::int64_t d, const std::uint32_t* index, const T* dy, T* dtable) {
  if (dtable == nullptr) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < d; ++j) dtable[index[r] * d + j] += dy[r * d + j];
  }
}

template <class T>
void add_row(std::int64_t rows, std::int64_t d, const T* x, const T* e, T* y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < d; ++j) y[r * d + j] = x[r * d + j] + e[j];
  }
}

template <class T>
void add_row_backward(std::int64_t rows, std::int64_t d, const T* dy, T* dx, T* de) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < d; ++j) {
      if (dx != nullptr) dx[r * d + j] += dy[r * d + j];
      if (de != nullptr) de[j] += dy[r * d + j];
    }
  }
}

template <class T>
void axpy(std::int64_t n, T alpha, const T* x, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += alpha * x[i];
}

template <class T>
T sigma(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

template <class T>
T silu_slope(T x) {
  const T s = sigma(x);
  return s * (T{1} + x * (T{1} - s));
}

template <class T>
void silu(std::int64_t n, const T* x, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * sigma(x[i]);
}

template <class T>
void silu_backward(std::int64_t n, const T* x, const T* dy, T* dx) {
  if (dx == nullptr) return;
  for (std::int64_t i = 0; i < n; ++i) dx[i] += dy[i] * silu_slope(x[i]);
}

template <class T>
void sigmoid(std::int64_t n, const T* x, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = sigma(x[i]);
}

template <class T>
void sigmoid_backward(std::int64_t n, const T* y, const T* dy, T* dx) {
  if (dx == nullptr) return;
  for (std::int64_t i = 0; i < n; ++i) dx[i] += dy[i] * y[i] * (T{1} - y[i]);
}

template <class T>
void scale_columns(const ScaleColumns& shape, const T* x, const T* s, const T* p, T* y) {
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const T scale = p != nullptr ? p[r * shape.p_stride] : T{1};
    for (std::int64_t j = 0; j < shape.k; ++j) y[r * shape.k + j] = x[r * shape.k + j] * s[j] * scale;
  }
}

template <class T>
void scale_columns_backward(const ScaleColumns& shape, const T* x, const T* s, const T* p, const T* dy, T* dx, T* ds, T* dp) {
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const T scale = p != nullptr ? p[r * shape.p_stride] : T{1};
    T dscale = 0;
    for (std::int64_t j = 0; j < shape.k; ++j) {
      const std::int64_t i = r * shape.k + j;
      if (dx != nullptr) dx[i] += dy[i] * s[j] * scale;
      if (ds != nullptr) ds[j] += dy[i] * x[i] * scale;
      dscale += dy[i] * x[i] * s[j];
    }
    if (dp != nullptr) dp[r * shape.p_stride] += dscale;
  }
}

}  // namespace dormouse::ops::reference
