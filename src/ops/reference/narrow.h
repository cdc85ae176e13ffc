// Products with narrow matrices, plain: y[r,j] = sum_i x[r,i] W[i,j], summed in f64.
#pragma once

#include <cstdint>
#include <span>

#include "ops/narrow.h"

namespace dormouse::ops::reference {

template <class T>
void products(std::int64_t rows, std::span<const Product<T>> list, Sweep) {
  for (const Product<T>& p : list) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < p.w->n(); ++j) {
        double sum = 0;
        for (std::int64_t i = 0; i < p.w->k(); ++i)
          sum += static_cast<double>(p.x[r * p.w->k() + i]) * static_cast<double>(p.w->value(i, j));
        p.y[r * p.w->n() + j] = static_cast<T>(sum);
      }
  }
}

}  // namespace dormouse::ops::reference
