// What surrounds the gated delta recurrence: silu_head_norm, decay, gated_head_norm.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/ops.h"
#include "ops/reference/elementwise.h"

namespace dormouse::ops::reference {

template <class T>
void silu_head_norm(const HeadNorm& shape, const T* x, T* y, T* inv) {
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const std::int64_t begin = r * shape.head_dim;
    silu(shape.head_dim, x + begin, y + begin);
    T squares = 0;
    for (std::int64_t i = begin; i < begin + shape.head_dim; ++i) squares += y[i] * y[i];
    inv[r] = T{1} / std::sqrt(squares + static_cast<T>(shape.eps));
    for (std::int64_t i = begin; i < begin + shape.head_dim; ++i) y[i] *= inv[r];
  }
}

// With a = silu(x), y = a*inv: da = inv*(dy - y*(y.dy)).
template <class T>
void silu_head_norm_backward(const HeadNorm& shape, const T* x, const T* y, const T* inv, const T* dy, T* dx) {
  if (dx == nullptr) return;
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const std::int64_t begin = r * shape.head_dim;
    T along = 0;
    for (std::int64_t i = begin; i < begin + shape.head_dim; ++i) along += y[i] * dy[i];
    for (std::int64_t i = begin; i < begin + shape.head_dim; ++i) dx[i] += inv[r] * (dy[i] - y[i] * along) * silu_slope(x[i]);
  }
}

inline constexpr double kDecayLogMin = -10, kDecayLogMax = 20;

template <class T>
T decay_rate(T a_log) {
  return std::exp(std::clamp(a_log, static_cast<T>(kDecayLogMin), static_cast<T>(kDecayLogMax)));
}

template <class T>
void decay(const Decay& shape, const T* zeta, const T* a_log, const T* bias, T* g) {
  const std::int64_t width = shape.heads * shape.head_dim;
  for (std::int64_t i = 0; i < shape.rows * width; ++i) {
    const std::int64_t j = i % width;
    g[i] = static_cast<T>(shape.g_min) * sigma(decay_rate(a_log[j / shape.head_dim]) * (zeta[i] + bias[j]));
  }
}

// The clamp passes the gradient of a_log inside [-10, 20], ends included.
template <class T>
void decay_backward(const Decay& shape, const T* zeta, const T* a_log, const T* bias, const T* g, const T* dg, T* dzeta, T* da_log,
                    T* dbias) {
  const std::int64_t width = shape.heads * shape.head_dim;
  for (std::int64_t i = 0; i < shape.rows * width; ++i) {
    const std::int64_t j = i % width;
    const std::int64_t head = j / shape.head_dim;
    const T rate = decay_rate(a_log[head]);
    const T dpre = dg[i] * g[i] * (T{1} - g[i] / static_cast<T>(shape.g_min)) * rate;  // of zeta + bias
    if (dzeta != nullptr) dzeta[i] += dpre;
    if (dbias != nullptr) dbias[j] += dpre;
    const bool inside = a_log[head] >= static_cast<T>(kDecayLogMin) && a_log[head] <= static_cast<T>(kDecayLogMax);
    if (da_log != nullptr && inside) da_log[head] += dpre * (zeta[i] + bias[j]);
  }
}

template <class T>
void gated_head_norm(const GatedHeadNorm& shape, const T* o, const T* z, const T* w, T* y, T* inv) {
  const std::int64_t hd = shape.head_dim;
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    T squares = 0;
    for (std::int64_t j = 0; j < hd; ++j) squares += o[r * hd + j] * o[r * hd + j];
    inv[r] = T{1} / std::sqrt(squares / static_cast<T>(hd) + static_cast<T>(shape.eps));
    for (std::int64_t j = 0; j < hd; ++j) y[r * hd + j] = o[r * hd + j] * inv[r] * w[j] * sigma(z[r * hd + j]);
  }
}

template <class T>
void gated_head_norm_backward(const GatedHeadNorm& shape, const T* o, const T* z, const T* w, const T* inv, const T* dy, T* d_o, T* dz,
                              T* dw) {
  const std::int64_t hd = shape.head_dim;
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    T along = 0;  // mean(o * d(o*inv))
    for (std::int64_t j = 0; j < hd; ++j) along += o[r * hd + j] * dy[r * hd + j] * w[j] * sigma(z[r * hd + j]);
    along /= static_cast<T>(hd);
    for (std::int64_t j = 0; j < hd; ++j) {
      const std::int64_t i = r * hd + j;
      const T gate = sigma(z[i]);
      if (d_o != nullptr) d_o[i] += inv[r] * (dy[i] * w[j] * gate - o[i] * inv[r] * inv[r] * along);
      if (dz != nullptr) dz[i] += dy[i] * o[i] * inv[r] * w[j] * gate * (T{1} - gate);
      if (dw != nullptr) dw[j] += dy[i] * o[i] * inv[r] * gate;
    }
  }
}

}  // namespace dormouse::ops::reference
