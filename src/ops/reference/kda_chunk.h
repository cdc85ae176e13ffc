// The gated delta recurrence in chunk (WY) form, scalar: a second statement of ops/reference/kda.h for the tests, with any number
// of rows per chunk. Formulas: Kimi Linear, arXiv 2510.26692, section on the chunkwise algorithm; gradients derived from them.
#pragma once

#include "ops/reference/kda.h"

namespace dormouse::ops::reference {

// One chunk of one unit, n rows. With G the running sum of g inside the chunk, S the entering state, E_ij = exp(G_i - G_j):
//   L = stril(beta_i sum_d k_i k_j E_ij), A = (I + L)^-1, W = A (beta k exp(G)), U = A (beta v), P = tril(scale sum_d q_i k_j E_ij)
//   N = U - W S
template <class T>
struct KdaChunk {
  std::size_t n = 0, hd = 0;
  std::vector<T> q, k, v, beta, big_g, lower, inverse, w, p, fresh;  // [n,hd] each, beta [n], lower, inverse, p [n,n]; fresh = N

  T pair(std::size_t i, std::size_t j, std::size_t d) const { return std::exp(big_g[i * hd + d] - big_g[j * hd + d]); }
  T from_start(std::size_t i, std::size_t d) const { return std::exp(big_g[i * hd + d]); }
  T to_end(std::size_t i, std::size_t d) const { return std::exp(big_g[(n - 1) * hd + d] - big_g[i * hd + d]); }
};

template <class T>
KdaChunk<T> kda_chunk_terms(const KdaUnit& u, T scale, std::size_t first, std::size_t n, const T* q, const T* k, const T* v, const T* g,
                            const T* beta, const T* s) {
  KdaChunk<T> c;
  const std::size_t hd = u.hd;
  c.n = n;
  c.hd = hd;
  std::vector<T> ub(n * hd, T(0));
  for (std::vector<T>* x : {&c.q, &c.k, &c.v, &c.big_g, &c.w, &c.fresh}) x->assign(n * hd, T(0));
  for (std::vector<T>* x : {&c.lower, &c.inverse, &c.p}) x->assign(n * n, T(0));
  c.beta.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    c.beta[i] = beta[u.beta + (first + i) * u.beta_row];
    for (std::size_t d = 0; d < hd; ++d) {
      const std::size_t at = u.x + (first + i) * u.row + d;
      c.q[i * hd + d] = q[at];
      c.k[i * hd + d] = k[at];
      c.v[i * hd + d] = v[at];
      c.big_g[i * hd + d] = g[at] + (i > 0 ? c.big_g[(i - 1) * hd + d] : T(0));
    }
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      for (std::size_t d = 0; d < hd; ++d) {
        const T ke = c.k[j * hd + d] * c.pair(i, j, d);
        c.p[i * n + j] += scale * c.q[i * hd + d] * ke;
        if (j < i) c.lower[i * n + j] += c.beta[i] * c.k[i * hd + d] * ke;
      }
  // Row i of the inverse by forward substitution: a_i = e_i - sum_{j<i} L_ij a_j.
  for (std::size_t i = 0; i < n; ++i) {
    c.inverse[i * n + i] = T(1);
    for (std::size_t j = 0; j < i; ++j)
      for (std::size_t m = 0; m <= j; ++m) c.inverse[i * n + m] -= c.lower[i * n + j] * c.inverse[j * n + m];
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      for (std::size_t d = 0; d < hd; ++d) {
        const T a = c.inverse[i * n + j] * c.beta[j];
        c.w[i * hd + d] += a * c.from_start(j, d) * c.k[j * hd + d];
        ub[i * hd + d] += a * c.v[j * hd + d];
      }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t x = 0; x < hd; ++x) {
      c.fresh[i * hd + x] = ub[i * hd + x];
      for (std::size_t d = 0; d < hd; ++d) c.fresh[i * hd + x] -= c.w[i * hd + d] * s[d * hd + x];
    }
  return c;
}

//   o = scale (q exp(G)) S + P N;   S' = exp(G_C) (rows) S + (k exp(G_C - G))^T N.        chunk_states holds ceil(t/rows) states.
template <class T>
void kda_chunk(const Kda& p, std::size_t rows, const T* q, const T* k, const T* v, const T* g, const T* beta, const T* state0, T* o,
               T* state, T* chunk_states) {
  const T scale = kda_scale<T>(p);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const KdaUnit u = kda_unit(p, b, h);
      const std::size_t hd = u.hd, size = hd * hd, chunks = (u.time + rows - 1) / rows;
      std::vector<T> s(size, T(0));
      if (state0 != nullptr) std::copy(state0 + u.state, state0 + u.state + size, s.begin());
      for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
        const std::size_t first = chunk * rows, n = std::min(rows, u.time - first);
        if (chunk_states != nullptr) std::copy(s.begin(), s.end(), chunk_states + (u.state * chunks + chunk * size));
        const KdaChunk<T> c = kda_chunk_terms(u, scale, first, n, q, k, v, g, beta, s.data());
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t x = 0; x < hd; ++x) {
            T sum = 0;
            for (std::size_t d = 0; d < hd; ++d) sum += scale * c.q[i * hd + d] * c.from_start(i, d) * s[d * hd + x];
            for (std::size_t j = 0; j <= i; ++j) sum += c.p[i * n + j] * c.fresh[j * hd + x];
            o[u.x + (first + i) * u.row + x] = sum;
          }
        for (std::size_t d = 0; d < hd; ++d)
          for (std::size_t x = 0; x < hd; ++x) {
            T sum = c.from_start(n - 1, d) * s[d * hd + x];
            for (std::size_t j = 0; j < n; ++j) sum += c.k[j * hd + d] * c.to_end(j, d) * c.fresh[j * hd + x];
            s[d * hd + x] = sum;
          }
      }
      if (state != nullptr) std::copy(s.begin(), s.end(), state + u.state);
    }
}

// The gradients of kda_chunk, chunks last to first, D the gradient of the state leaving the chunk.
template <class T>
void kda_chunk_backward(const Kda& p, std::size_t rows, const T* q, const T* k, const T* v, const T* g, const T* beta,
                        const T* chunk_states, const T* d_o, const T* dstate, T* dq, T* dk, T* dv, T* dg, T* dbeta, T* dstate0) {
  const T scale = kda_scale<T>(p);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const KdaUnit u = kda_unit(p, b, h);
      const std::size_t hd = u.hd, size = hd * hd, chunks = (u.time + rows - 1) / rows;
      std::vector<T> grad(size, T(0)), before(size);
      if (dstate != nullptr) std::copy(dstate + u.state, dstate + u.state + size, grad.begin());
      for (std::size_t chunk = chunks; chunk-- > 0;) {
        const std::size_t first = chunk * rows, n = std::min(rows, u.time - first);
        const T* s = chunk_states + u.state * chunks + chunk * size;
        const KdaChunk<T> c = kda_chunk_terms(u, scale, first, n, q, k, v, g, beta, s);
        const auto out = [&](std::size_t i, std::size_t x) { return d_o[u.x + (first + i) * u.row + x]; };
        std::vector<T> dp(n * n, T(0)), dn(n * hd, T(0)), dw(n * hd, T(0)), da(n * n, T(0)), at_dn(n * hd, T(0)), at_dw(n * hd, T(0));
        std::vector<T> left(n * n, T(0)), dl(n * n, T(0)), gq(n * hd, T(0)), gk(n * hd, T(0)), gg(n * hd, T(0)), gb(n, T(0));
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t j = 0; j <= i; ++j)
            for (std::size_t x = 0; x < hd; ++x) dp[i * n + j] += scale * out(i, x) * c.fresh[j * hd + x];
        // dN = P^T dO + (k exp(G_C - G)) D;  dW = -dN S^T
        for (std::size_t j = 0; j < n; ++j)
          for (std::size_t x = 0; x < hd; ++x) {
            T sum = 0;
            for (std::size_t i = j; i < n; ++i) sum += c.p[i * n + j] * out(i, x);
            for (std::size_t d = 0; d < hd; ++d) sum += c.k[j * hd + d] * c.to_end(j, d) * grad[d * hd + x];
            dn[j * hd + x] = sum;
            for (std::size_t d = 0; d < hd; ++d) dw[j * hd + d] -= sum * s[d * hd + x];
          }
        // State terms: dQ = scale (dO S^T) exp(G);  dK = (N D^T) exp(G_C - G);  dG_C
        for (std::size_t d = 0; d < hd; ++d) {
          T end = 0;
          for (std::size_t x = 0; x < hd; ++x) {
            end += c.from_start(n - 1, d) * s[d * hd + x] * grad[d * hd + x];
            T sum = c.from_start(n - 1, d) * grad[d * hd + x];
            for (std::size_t i = 0; i < n; ++i)
              sum += scale * c.q[i * hd + d] * c.from_start(i, d) * out(i, x) - c.w[i * hd + d] * dn[i * hd + x];
            before[d * hd + x] = sum;
          }
          for (std::size_t i = 0; i < n; ++i) {
            T dqi = 0, dki = 0;
            for (std::size_t x = 0; x < hd; ++x) {
              dqi += scale * out(i, x) * s[d * hd + x];
              dki += c.fresh[i * hd + x] * grad[d * hd + x];
            }
            gq[i * hd + d] = dqi * c.from_start(i, d);
            gk[i * hd + d] = dki * c.to_end(i, d);
            gg[i * hd + d] = c.q[i * hd + d] * gq[i * hd + d] - c.k[i * hd + d] * gk[i * hd + d];
            end += c.k[i * hd + d] * gk[i * hd + d];
          }
          gg[(n - 1) * hd + d] += end;
        }
        // Through the inverse: dA = dN (beta v)^T + dW (beta k exp G)^T;  dL = -stril(A^T dA A^T)
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t j = 0; j < n; ++j)
            for (std::size_t d = 0; d < hd; ++d) {
              da[i * n + j] += c.beta[j] * (dn[i * hd + d] * c.v[j * hd + d] + dw[i * hd + d] * c.k[j * hd + d] * c.from_start(j, d));
              at_dn[i * hd + d] += c.inverse[j * n + i] * dn[j * hd + d];
              at_dw[i * hd + d] += c.inverse[j * n + i] * dw[j * hd + d];
            }
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t j = 0; j < n; ++j)
            for (std::size_t m = 0; m < n; ++m) left[i * n + j] += c.inverse[m * n + i] * da[m * n + j];
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t j = 0; j < i; ++j)
            for (std::size_t m = 0; m < n; ++m) dl[i * n + j] -= left[i * n + m] * c.inverse[j * n + m];
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t d = 0; d < hd; ++d) {
            const T w = at_dw[i * hd + d] * c.from_start(i, d);
            gb[i] += at_dn[i * hd + d] * c.v[i * hd + d] + w * c.k[i * hd + d];
            gk[i * hd + d] += c.beta[i] * w;
            gg[i * hd + d] += c.beta[i] * c.k[i * hd + d] * w;
          }
        // Pair terms
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t j = 0; j <= i; ++j)
            for (std::size_t d = 0; d < hd; ++d) {
              const T e = c.pair(i, j, d), ki = c.k[i * hd + d], kj = c.k[j * hd + d], qi = c.q[i * hd + d];
              const T dpe = dp[i * n + j] * e, dle = j < i ? dl[i * n + j] * e : T(0);
              gq[i * hd + d] += dpe * kj;
              gk[i * hd + d] += c.beta[i] * dle * kj;
              gk[j * hd + d] += dpe * qi + c.beta[i] * dle * ki;
              gb[i] += dle * ki * kj;
              const T through = (dpe * qi + c.beta[i] * dle * ki) * kj;
              gg[i * hd + d] += through;
              gg[j * hd + d] -= through;
            }
        for (std::size_t d = 0; d < hd; ++d) {
          T run = 0;
          for (std::size_t i = n; i-- > 0;) {
            const std::size_t at = u.x + (first + i) * u.row + d;
            run += gg[i * hd + d];
            if (dg != nullptr) dg[at] += run;
            if (dq != nullptr) dq[at] += gq[i * hd + d];
            if (dk != nullptr) dk[at] += gk[i * hd + d];
            if (dv != nullptr) dv[at] += c.beta[i] * at_dn[i * hd + d];
          }
        }
        if (dbeta != nullptr)
          for (std::size_t i = 0; i < n; ++i) dbeta[u.beta + (first + i) * u.beta_row] += gb[i];
        grad = before;
      }
      if (dstate0 != nullptr)
        for (std::size_t i = 0; i < size; ++i) dstate0[u.state + i] += grad[i];
    }
}

}  // namespace dormouse::ops::reference
