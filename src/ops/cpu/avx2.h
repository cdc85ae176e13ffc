// Functions with AVX2, for kernels that are not compiled by Highway and for what its operations do not say.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#define DORMOUSE_AVX2 __attribute__((target("avx2,fma")))

namespace dormouse::ops::cpu {

// sums += a[0] b[0] + a[1] b[1] in every lane, of two 16-bit whole numbers each. Assembly, because GCC 12 copies registers around the
// intrinsics.
DORMOUSE_AVX2 inline __attribute__((always_inline)) void add_pair_products(__m256i& sums, __m256i a, __m256i b) {
  __m256i product;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sums), "=&x"(product) : "x"(a), "x"(b));
}

}  // namespace dormouse::ops::cpu
#endif
