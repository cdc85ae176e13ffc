// Head product and cross-entropy in one; one row of logits at a time.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/ops.h"
#include "ops/reference/gemm.h"

namespace dormouse::ops::reference {

// logits[c] = x . V[c,:]
template <class T>
std::vector<T> row_logits(const CrossEntropy& shape, const T* x, const T* v) {
  std::vector<T> logits(static_cast<std::size_t>(shape.classes));
  const Gemm g{.m = 1, .n = shape.classes, .k = shape.k, .lda = shape.k, .ldb = shape.k, .ldc = shape.classes, .transpose_b = true};
  gemm(g, x, v, logits.data());
  return logits;
}

template <class T>
void cross_entropy(const CrossEntropy& shape, const T* x, const T* v, const std::uint8_t* target, T* nats, T* lse) {
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const std::vector<T> logits = row_logits(shape, x + r * shape.k, v);
    lse[r] = log_sum_exp(shape.classes, logits.data());
    nats[r] = lse[r] - logits[target[r]];
  }
}

template <class T>
void cross_entropy_backward(const CrossEntropy& shape, const T* x, const T* v, const std::uint8_t* target, const T* lse, const T* dnats,
                            T* dx, T* dv) {
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const std::vector<T> logits = row_logits(shape, x + r * shape.k, v);
    for (std::int64_t c = 0; c < shape.classes; ++c) {
      const T softmax = std::exp(logits[static_cast<std::size_t>(c)] - lse[r]);
      const T dlogit = (softmax - (c == target[r] ? T{1} : T{0})) * dnats[r];
      for (std::int64_t j = 0; j < shape.k; ++j) {
        if (dx != nullptr) dx[r * shape.k + j] += dlogit * v[c * shape.k + j];
        if (dv != nullptr) dv[c * shape.k + j] += dlogit * x[r * shape.k + j];
      }
    }
  }
}

}  // namespace dormouse::ops::reference
