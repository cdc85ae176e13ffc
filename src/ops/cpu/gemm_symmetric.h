// Products that the caller knows to come out symmetric (Gemm::symmetric): half of c is computed, the other half copied.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace dormouse::ops::cpu {

// c[j,i] = c[i,j] for i in [first, last) and those j in [begin, end) that are larger.
void mirror(std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end, std::int64_t ldc, float* c);

// g by `gemm` in blocks of rows from the diagonal on, and their mirror image.
void gemm_in_half(void (*gemm)(const Gemm&, const float* a, const float* b, float* c), const Gemm& g, const float* a, const float* b,
                  float* c);

}  // namespace dormouse::ops::cpu
