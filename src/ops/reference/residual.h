// The gated residual of the loop block.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace dormouse::ops::reference {

template <class T>
void residual(const Residual& shape, const T* u, const T* rho, const T* gates, const T* a, const T* m, const T* d, const T* f, T* h) {
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const T* gate = gates + r * shape.gate_width;
    for (std::int64_t i = r * shape.d; i < (r + 1) * shape.d; ++i) {
      T y = gate[2] * f[i];
      if (a != nullptr) y += gate[0] * a[i];
      y += m != nullptr ? gate[1] * m[i] + (T{1} - gate[1]) * d[i] : d[i];
      h[i] = u[i] + *rho * y;
    }
  }
}

template <class T>
void residual_backward(const Residual& shape, const T* rho, const T* gates, const T* a, const T* m, const T* d, const T* f, const T* dh,
                       T* du, T* drho, T* dgates, T* da, T* dm, T* dd, T* df) {
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const T* gate = gates + r * shape.gate_width;
    const T keep = m != nullptr ? T{1} - gate[1] : T{1};
    T to_a = 0, to_m = 0, to_d = 0, to_f = 0;  // dh . term
    for (std::int64_t i = r * shape.d; i < (r + 1) * shape.d; ++i) {
      const T dy = *rho * dh[i];
      if (du != nullptr) du[i] += dh[i];
      if (da != nullptr) da[i] += dy * gate[0];
      if (dm != nullptr) dm[i] += dy * gate[1];
      if (dd != nullptr) dd[i] += dy * keep;
      if (df != nullptr) df[i] += dy * gate[2];
      if (a != nullptr) to_a += dh[i] * a[i];
      if (m != nullptr) to_m += dh[i] * m[i];
      to_d += dh[i] * d[i];
      to_f += dh[i] * f[i];
    }
    if (drho != nullptr) *drho += gate[0] * to_a + (m != nullptr ? gate[1] * to_m : T{0}) + keep * to_d + gate[2] * to_f;
    if (dgates == nullptr) continue;
    T* dgate = dgates + r * shape.gate_width;
    if (a != nullptr) dgate[0] += *rho * to_a;
    if (m != nullptr) dgate[1] += *rho * (to_m - to_d);
    dgate[2] += *rho * to_f;
  }
}

}  // namespace dormouse::ops::reference
