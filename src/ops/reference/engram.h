// The gated read of the n-gram memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/ops.h"
#include "ops/reference/elementwise.h"

namespace dormouse::ops::reference {

// sign(s) sqrt(max(|s|, floor)), sign(0) = 0; its slope is 0 up to the floor.
inline constexpr double kEngramRootFloor = 1e-6;

template <class T>
T signed_root(T s) {
  const T root = std::sqrt(std::max(std::abs(s), static_cast<T>(kEngramRootFloor)));
  return s > 0 ? root : s < 0 ? -root : T{0};
}

template <class T>
T signed_root_slope(T s) {
  const T size = std::abs(s);
  return size > static_cast<T>(kEngramRootFloor) ? T{1} / (2 * std::sqrt(size)) : T{0};
}

template <class T>
void engram_read(const EngramRead& shape, const T* key, const T* val, const T* u, T* read, T* saved) {
  const std::int64_t d = shape.d;
  const auto width = static_cast<T>(d);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    T kk = 0, uu = 0, ku = 0;
    for (std::int64_t i = r * d; i < (r + 1) * d; ++i) {
      kk += key[i] * key[i];
      uu += u[i] * u[i];
      ku += key[i] * u[i];
    }
    const T ik = T{1} / std::sqrt(kk / width + static_cast<T>(shape.eps));
    const T iu = T{1} / std::sqrt(uu / width + static_cast<T>(shape.eps));
    const T s = ku * ik * iu / std::sqrt(width);
    const T gate = sigma(signed_root(s));
    for (std::int64_t i = r * d; i < (r + 1) * d; ++i) read[i] = gate * val[i];
    const T row[] = {ik, iu, s, gate};
    std::copy_n(row, 4, saved + 4 * r);
  }
}

// ds/dkey = u*ik*iu/sqrt(d) - s*ik^2/d*key, likewise for u.
template <class T>
void engram_read_backward(const EngramRead& shape, const T* key, const T* val, const T* u, const T* saved, const T* dread, T* dkey, T* dval,
                          T* du) {
  const std::int64_t d = shape.d;
  const auto width = static_cast<T>(d);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const T ik = saved[4 * r], iu = saved[4 * r + 1], s = saved[4 * r + 2], gate = saved[4 * r + 3];
    T dgate = 0;
    for (std::int64_t i = r * d; i < (r + 1) * d; ++i) dgate += dread[i] * val[i];
    const T ds = dgate * gate * (T{1} - gate) * signed_root_slope(s);
    const T cross = ds * ik * iu / std::sqrt(width);
    for (std::int64_t i = r * d; i < (r + 1) * d; ++i) {
      if (dval != nullptr) dval[i] += gate * dread[i];
      if (dkey != nullptr) dkey[i] += cross * u[i] - ds * s * ik * ik / width * key[i];
      if (du != nullptr) du[i] += cross * key[i] - ds * s * iu * iu / width * u[i];
    }
  }
}

}  // namespace dormouse::ops::reference
