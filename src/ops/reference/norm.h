// RMS norm.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/ops.h"

namespace dormouse::ops::reference {

template <class T>
void rms_norm(const RmsNorm& shape, const T* x, const T* g, T* y, T* inv) {
  const std::int64_t d = shape.d;
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    T squares = 0;
    for (std::int64_t j = 0; j < d; ++j) squares += x[r * d + j] * x[r * d + j];
    inv[r] = T{1} / std::sqrt(squares / static_cast<T>(d) + static_cast<T>(shape.eps));
    for (std::int64_t j = 0; j < d; ++j) y[r * d + j] = g[j] * x[r * d + j] * inv[r];
  }
}

template <class T>
void rms_norm_backward(const RmsNorm& shape, const T* x, const T* g, const T* inv, const T* dy, T* dx, T* dg) {
  const std::int64_t d = shape.d;
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    T along = 0;  // mean(g*dy*x)
    for (std::int64_t j = 0; j < d; ++j) along += g[j] * dy[r * d + j] * x[r * d + j];
    along /= static_cast<T>(d);
    for (std::int64_t j = 0; j < d; ++j) {
      const std::int64_t i = r * d + j;
      if (dx != nullptr) dx[i] += inv[r] * (g[j] * dy[i] - x[i] * inv[r] * inv[r] * along);
      if (dg != nullptr) dg[j] += dy[i] * x[i] * inv[r];
    }
  }
}

}  // namespace dormouse::ops::reference
