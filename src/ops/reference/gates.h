// Controller outputs to gates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/ops.h"
#include "ops/reference/elementwise.h"

namespace dormouse::ops::reference {

template <class T>
void gates(const Gates& shape, const T* c, T* gates) {
  const auto lam_max = static_cast<T>(shape.lam_max);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const T* in = c + r * shape.width;
    T* out = gates + r * (3 + shape.experts);
    out[0] = sigma(in[0]);
    out[1] = shape.smooth ? lam_max * sigma(in[1]) : std::min(sigma(in[1]), lam_max);
    out[2] = sigma(in[2]);
    if (shape.experts == 0) continue;
    const T top = *std::max_element(in + 3, in + 3 + shape.experts);
    T sum = 0;
    for (std::int64_t e = 3; e < 3 + shape.experts; ++e) sum += out[e] = std::exp(in[e] - top);
    for (std::int64_t e = 3; e < 3 + shape.experts; ++e) out[e] /= sum;
  }
}

template <class T>
void gates_backward(const Gates& shape, const T* /*c*/, const T* gates, const T* dgates, T* dc) {
  if (dc == nullptr) return;
  const auto lam_max = static_cast<T>(shape.lam_max);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const T* y = gates + r * (3 + shape.experts);
    const T* dy = dgates + r * (3 + shape.experts);
    T* dx = dc + r * shape.width;
    dx[0] += dy[0] * y[0] * (T{1} - y[0]);
    if (shape.smooth) {
      dx[1] += dy[1] * y[1] * (T{1} - y[1] / lam_max);
    } else if (y[1] < lam_max) {
      dx[1] += dy[1] * y[1] * (T{1} - y[1]);
    }
    dx[2] += dy[2] * y[2] * (T{1} - y[2]);
    T mean = 0;  // sum_e p_e dp_e
    for (std::int64_t e = 3; e < 3 + shape.experts; ++e) mean += y[e] * dy[e];
    for (std::int64_t e = 3; e < 3 + shape.experts; ++e) dx[e] += y[e] * (dy[e] - mean);
  }
}

}  // namespace dormouse::ops::reference
