// What the optimizers are built from.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/ops.h"

namespace dormouse::ops::reference {

template <class T>
double sum_squares(std::int64_t n, const T* x) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

// `count` vectors of `length` elements: vector i starts at i*start, its elements lie `step` apart.
template <class T>
void normalize(std::int64_t count, std::int64_t length, std::int64_t start, std::int64_t step, T floor, T* x) {
  for (std::int64_t i = 0; i < count; ++i) {
    T squares = 0;
    for (std::int64_t j = 0; j < length; ++j) squares += x[i * start + j * step] * x[i * start + j * step];
    const T norm = std::max(std::sqrt(squares), floor);
    for (std::int64_t j = 0; j < length; ++j) x[i * start + j * step] /= norm;
  }
}

template <class T>
void normalize_columns(std::int64_t rows, std::int64_t cols, T floor, T* x) {
  normalize(cols, rows, 1, cols, floor, x);
}

template <class T>
void normalize_rows(std::int64_t rows, std::int64_t cols, T floor, T* x) {
  normalize(rows, cols, cols, 1, floor, x);
}

template <class T>
void adamw(std::int64_t n, T lr, T beta1, T beta2, T eps, T weight_decay, T bias1, T bias2, T grad_scale, const T* g, T* m, T* v, T* w) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T grad = grad_scale * g[i];
    m[i] = beta1 * m[i] + (T{1} - beta1) * grad;
    v[i] = beta2 * v[i] + (T{1} - beta2) * grad * grad;
    w[i] = (T{1} - lr * weight_decay) * w[i] - lr * (m[i] / bias1) / (std::sqrt(v[i] / bias2) + eps);
  }
}

}  // namespace dormouse::ops::reference
