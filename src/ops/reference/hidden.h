// The hidden layer between two thin factors.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.h"
#include "ops/reference/elementwise.h"
#include "ops/reference/gemm.h"

namespace dormouse::ops::reference {

// x V^T [rows,f]
template <class T>
std::vector<T> hidden_preactivation(const Hidden& s, const T* x, const T* v) {
  std::vector<T> p(static_cast<std::size_t>(s.rows * s.f));
  gemm({.m = s.rows, .n = s.f, .k = s.k, .lda = s.k, .ldb = s.k, .ldc = s.f, .transpose_b = true, .compute = s.compute}, x, v, p.data());
  return p;
}

template <class T>
void hidden(const Hidden& s, const T* x, const T* v, const T* u, T* y) {
  std::vector<T> h = hidden_preactivation(s, x, v);
  silu(s.rows * s.f, h.data(), h.data());
  gemm({.m = s.rows, .n = s.r, .k = s.f, .lda = s.f, .ldb = s.r, .ldc = s.r, .compute = s.compute}, h.data(), u, y);
}

template <class T>
void hidden_backward(const Hidden& s, const T* x, const T* v, const T* u, const T* dy, T* dx, T* dv, T* du) {
  const std::int64_t n = s.rows * s.f;
  const std::vector<T> p = hidden_preactivation(s, x, v);
  std::vector<T> h(p.size());
  std::vector<T> dh(p.size());
  std::vector<T> dp(p.size());
  silu(n, p.data(), h.data());
  gemm({.m = s.rows, .n = s.f, .k = s.r, .lda = s.r, .ldb = s.r, .ldc = s.f, .transpose_b = true, .compute = s.compute}, dy, u, dh.data());
  silu_backward(n, p.data(), dh.data(), dp.data());
  Gemm g{.lda = s.f, .accumulate = true, .compute = s.compute};
  if (du != nullptr) {
    g.m = s.f, g.n = g.ldb = g.ldc = s.r, g.k = s.rows, g.transpose_a = true;
    gemm(g, h.data(), dy, du);
  }
  if (dv != nullptr) {
    g.m = s.f, g.n = g.ldb = g.ldc = s.k, g.k = s.rows, g.transpose_a = true;
    gemm(g, dp.data(), x, dv);
  }
  if (dx != nullptr) {
    g.m = s.rows, g.n = g.ldb = g.ldc = s.k, g.k = s.f, g.transpose_a = false;
    gemm(g, dp.data(), v, dx);
  }
}

}  // namespace dormouse::ops::reference
