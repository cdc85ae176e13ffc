// Functions with AVX-512 VNNI, for which Highway 1.0.3 has no target: to be called where native_vnni() (ops/cpu_level.h) is true.
#pragma once

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// _mm512_undefined_ps of its own header (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#define DORMOUSE_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#endif
