// The gated delta recurrence, plain and scalar: `kda`, `kda_backward`, `kda_step` are the recurrence itself and stand in the
// reference table; `kda_chunk`, `kda_chunk_backward` state the same function in chunk (WY) form for the tests.
// Layouts: ops/ops.h. Source of both forms: Kimi Linear (KDA), arXiv 2510.26692; every backward accumulates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/ops.h"

namespace dormouse::ops::reference {

// Strided views of one (batch, head) unit: row t of q,k,v,g,o starts at t*H*hd, beta at t*H.
struct KdaUnit {
  std::size_t hd, time, chunks, row, beta_row;  // row = H*hd, beta_row = H
  std::size_t x, beta, state, chunk_state;      // offsets of the unit's first element
};

inline KdaUnit kda_unit(const Kda& p, std::int64_t batch, std::int64_t head) {
  KdaUnit u{};
  const auto b = static_cast<std::size_t>(batch), h = static_cast<std::size_t>(head), heads = static_cast<std::size_t>(p.heads);
  u.hd = static_cast<std::size_t>(p.head_dim);
  u.time = static_cast<std::size_t>(p.time);
  u.chunks = static_cast<std::size_t>((p.time + kKdaChunk - 1) / kKdaChunk);
  u.row = heads * u.hd;
  u.beta_row = heads;
  u.x = b * u.time * u.row + h * u.hd;
  u.beta = b * u.time * heads + h;
  u.state = (b * heads + h) * u.hd * u.hd;
  u.chunk_state = u.state * u.chunks;
  return u;
}

template <class T>
T kda_scale(const Kda& p) {
  return T(1) / std::sqrt(static_cast<T>(p.head_dim));
}

// One position: s <- exp(g) s (rows); u = beta (v - s^T k); s += k u^T.  s [hd,hd]; u [hd] written; decayed (or null) receives the
// state between decay and write.
template <class T>
void kda_write(std::size_t hd, const T* k, const T* v, const T* g, T beta, T* s, T* u, T* decayed) {
  std::copy(v, v + hd, u);
  for (std::size_t d = 0; d < hd; ++d) {
    const T a = std::exp(g[d]);
    for (std::size_t c = 0; c < hd; ++c) {
      s[d * hd + c] *= a;
      u[c] -= k[d] * s[d * hd + c];
    }
  }
  if (decayed != nullptr) std::copy(s, s + hd * hd, decayed);
  for (std::size_t c = 0; c < hd; ++c) u[c] *= beta;
  for (std::size_t d = 0; d < hd; ++d)
    for (std::size_t c = 0; c < hd; ++c) s[d * hd + c] += k[d] * u[c];
}

// o[c] = scale * sum_d q[d] s[d,c]
template <class T>
void kda_read(std::size_t hd, T scale, const T* q, const T* s, T* o) {
  std::fill(o, o + hd, T(0));
  for (std::size_t d = 0; d < hd; ++d)
    for (std::size_t c = 0; c < hd; ++c) o[c] += scale * q[d] * s[d * hd + c];
}

template <class T>
void kda(const Kda& p, const T* q, const T* k, const T* v, const T* g, const T* beta, const T* state0, T* o, T* state, T* chunk_states) {
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const KdaUnit n = kda_unit(p, b, h);
      const std::size_t size = n.hd * n.hd;
      std::vector<T> s(size, T(0)), u(n.hd);
      if (state0 != nullptr) std::copy(state0 + n.state, state0 + n.state + size, s.begin());
      for (std::size_t t = 0; t < n.time; ++t) {
        if (chunk_states != nullptr && t % kKdaChunk == 0)
          std::copy(s.begin(), s.end(), chunk_states + n.chunk_state + t / kKdaChunk * size);
        const std::size_t at = n.x + t * n.row;
        kda_write(n.hd, k + at, v + at, g + at, beta[n.beta + t * n.beta_row], s.data(), u.data(), static_cast<T*>(nullptr));
        kda_read(n.hd, kda_scale<T>(p), q + at, s.data(), o + at);
      }
      if (state != nullptr) std::copy(s.begin(), s.end(), state + n.state);
    }
}

template <class T>
void kda_step(const Kda& p, const T* q, const T* k, const T* v, const T* g, const T* beta, T* state, T* o) {
  kda(p, q, k, v, g, beta, static_cast<const T*>(state), o, state, static_cast<T*>(nullptr));
}

// With D the gradient of S_t, from the last position to the first (s = scale, S- the decayed state):
//   dq = s S_t do;  D += s q do^T;  du = D^T k;  dbeta = <du, v - S-^T k>;  dv = beta du;  dk = D u - beta S- du
//   dS- = D - beta k du^T;  dg[d] = sum_v dS-[d,v] S-[d,v];  D <- exp(g) (rows) dS-
template <class T>
void kda_backward(const Kda& p, const T* q, const T* k, const T* v, const T* g, const T* beta, const T* chunk_states, const T* d_o,
                  const T* dstate, T* dq, T* dk, T* dv, T* dg, T* dbeta, T* dstate0) {
  const T scale = kda_scale<T>(p);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const KdaUnit n = kda_unit(p, b, h);
      const std::size_t hd = n.hd, size = hd * hd, rows = kKdaChunk;
      std::vector<T> grad(size, T(0)), s(size), after(rows * size), decayed(rows * size), u(rows * hd), du(hd);
      if (dstate != nullptr) std::copy(dstate + n.state, dstate + n.state + size, grad.begin());
      for (std::size_t chunk = n.chunks; chunk-- > 0;) {
        const std::size_t first = chunk * rows, count = std::min(rows, n.time - first);
        const T* entering = chunk_states + n.chunk_state + chunk * size;
        std::copy(entering, entering + size, s.begin());
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t at = n.x + (first + i) * n.row;
          kda_write(hd, k + at, v + at, g + at, beta[n.beta + (first + i) * n.beta_row], s.data(), &u[i * hd], &decayed[i * size]);
          std::copy(s.begin(), s.end(), &after[i * size]);
        }
        for (std::size_t i = count; i-- > 0;) {
          const std::size_t at = n.x + (first + i) * n.row, bt = n.beta + (first + i) * n.beta_row;
          const T* st = &after[i * size];
          const T* sd = &decayed[i * size];
          std::fill(du.begin(), du.end(), T(0));
          for (std::size_t d = 0; d < hd; ++d) {
            T dqd = 0;
            for (std::size_t c = 0; c < hd; ++c) {
              dqd += st[d * hd + c] * d_o[at + c];
              grad[d * hd + c] += scale * q[at + d] * d_o[at + c];
              du[c] += grad[d * hd + c] * k[at + d];
            }
            if (dq != nullptr) dq[at + d] += scale * dqd;
          }
          T db = 0;
          for (std::size_t c = 0; c < hd; ++c) {
            T residual = v[at + c];
            for (std::size_t d = 0; d < hd; ++d) residual -= sd[d * hd + c] * k[at + d];
            db += du[c] * residual;
            if (dv != nullptr) dv[at + c] += beta[bt] * du[c];
          }
          if (dbeta != nullptr) dbeta[bt] += db;
          for (std::size_t d = 0; d < hd; ++d) {
            const T alpha = std::exp(g[at + d]);
            T dkd = 0, dgd = 0;
            for (std::size_t c = 0; c < hd; ++c) {
              T& x = grad[d * hd + c];
              dkd += x * u[i * hd + c] - beta[bt] * sd[d * hd + c] * du[c];
              x -= beta[bt] * k[at + d] * du[c];
              dgd += x * sd[d * hd + c];
              x *= alpha;
            }
            if (dk != nullptr) dk[at + d] += dkd;
            if (dg != nullptr) dg[at + d] += dgd;
          }
        }
      }
      if (dstate0 != nullptr)
        for (std::size_t i = 0; i < size; ++i) dstate0[n.state + i] += grad[i];
    }
}

}  // namespace dormouse::ops::reference
