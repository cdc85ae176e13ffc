// Functions with AVX-512 VNNI, for which Highway 1.0.3 has no target: to be called where native_vnni() (ops/cpu_level.h) is true.
#pragma once

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// _mm512_undefined_ps of its own header (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#define DORMOUSE_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

namespace dormouse::ops::cpu {

// sums += a[0] b[0] + a[1] b[1] in every lane, of two 16-bit whole numbers each. The intrinsic makes GCC 12 move and spill the sums.
DORMOUSE_VNNI inline __attribute__((always_inline)) void add_pair_products(__m512i& sums, __m512i a, __m512i b) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
}

// The first `count` of 16 lanes, none or all beyond.
inline __mmask16 first_lanes(std::int64_t count) { return static_cast<__mmask16>((1U << std::clamp<std::int64_t>(count, 0, 16)) - 1U); }

}  // namespace dormouse::ops::cpu
#endif
