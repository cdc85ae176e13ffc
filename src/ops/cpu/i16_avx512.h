// Tiles of 16-bit whole numbers with VPDPWSSD: for native_vnni().
#pragma once

#include "ops/cpu/i16_kernels.h"
#include "ops/cpu/vnni.h"

#if defined(__x86_64__)
namespace dormouse::ops::cpu {

struct I16Avx512 {
  static constexpr std::int64_t kLanes = 16;
  static constexpr std::int64_t kRows = 12;  // of a tile: 12 x 2 sums, their two columns and one factor are 27 of 32 registers
  static constexpr std::int64_t kStrip = 32;

  DORMOUSE_VNNI static __m512i round_scaled(__m512 x, __m512 inverse) { return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse)); }

  // Sixteen side by side.
  DORMOUSE_VNNI static void scales_of(__m512 squares, __m512 most, __m512* scale, __m512* inverse) {
    const __m512 norm = _mm512_sqrt_ps(squares);
    const __m512 s = _mm512_max_ps(_mm512_mul_ps(norm, _mm512_set1_ps(1 / kI16Norm)), _mm512_mul_ps(most, _mm512_set1_ps(1 / kI16Largest)));
    const __mmask16 some = _mm512_cmp_ps_mask(norm, _mm512_set1_ps(kI16Smallest), _CMP_GE_OQ);
    const __mmask16 finite = _mm512_cmp_ps_mask(norm, _mm512_set1_ps(HUGE_VALF), _CMP_LT_OQ);
    *scale = _mm512_mask_mov_ps(_mm512_maskz_mov_ps(some, s), static_cast<__mmask16>(~finite), _mm512_set1_ps(NAN));
    *inverse = _mm512_maskz_div_ps(some & finite, _mm512_set1_ps(1.0F), s);
  }

  // Rows whose elements along k are neighbours: `rows` of them, k elements, to kRowStride pairs apart, the last pair filled with 0.
  DORMOUSE_VNNI static void round_rows(const float* from, std::int64_t ld, std::int64_t rows, std::int64_t k, Pair* to, float* scale) {
    const std::int64_t whole = k / 32 * 32;
    const __mmask16 tail[2] = {first_lanes(k - whole), first_lanes(k - whole - 16)};
    const __mmask16 stored[2] = {first_lanes(k - whole + k % 2), first_lanes(k - whole - 16 + k % 2)};
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* x = from + r * ld;
      __m512 squares[2], most[2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512 v = _mm512_maskz_loadu_ps(tail[half], x + whole + 16 * half);
        squares[half] = _mm512_mul_ps(v, v);
        most[half] = _mm512_abs_ps(v);
      }
      for (std::int64_t p = 0; p < whole; p += 32) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const __m512 v = _mm512_loadu_ps(x + p + 16 * half);
          squares[half] = _mm512_fmadd_ps(v, v, squares[half]);
          most[half] = _mm512_max_ps(most[half], _mm512_abs_ps(v));
        }
      }
      const Scale s =
          scale_of(_mm512_reduce_add_ps(_mm512_add_ps(squares[0], squares[1])), _mm512_reduce_max_ps(_mm512_max_ps(most[0], most[1])));
      scale[r] = s.scale;
      const __m512 inverse = _mm512_set1_ps(s.inverse);
      auto* out = reinterpret_cast<std::int16_t*>(to + r * kRowStride);
      for (std::int64_t p = 0; p < whole; p += 16) {
        const __m512i q = round_scaled(_mm512_loadu_ps(x + p), inverse);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + p), _mm512_cvtsepi32_epi16(q));
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512i q = round_scaled(_mm512_maskz_loadu_ps(tail[half], x + whole + 16 * half), inverse);
        _mm256_mask_storeu_epi16(out + whole + 16 * half, stored[half], _mm512_cvtsepi32_epi16(q));
      }
    }
  }

  // Columns whose elements along k are `ld` apart, for kVectors * 16 columns of which `columns` exist: pair p of column 16 v + i goes to
  // to[p * pair_stride + place(v) + i]. Zeros beyond `columns`.
  template <int kVectors, class Place>
  DORMOUSE_VNNI static void round_columns(const float* from, std::int64_t ld, std::int64_t columns, std::int64_t k,
                                          std::int64_t pair_stride, Pair* to, const Place& place, float* scale) {
    __mmask16 lanes[kVectors];
    __m512 squares[kVectors], most[kVectors], inverse[kVectors];
#pragma GCC unroll 6
    for (int v = 0; v < kVectors; ++v) {
      lanes[v] = first_lanes(columns - 16 * v);
      squares[v] = most[v] = _mm512_setzero_ps();
    }
    for (std::int64_t p = 0; p < k; ++p) {
#pragma GCC unroll 6
      for (int v = 0; v < kVectors; ++v) {
        const __m512 x = _mm512_maskz_loadu_ps(lanes[v], from + p * ld + 16 * v);
        squares[v] = _mm512_fmadd_ps(x, x, squares[v]);
        most[v] = _mm512_max_ps(most[v], _mm512_abs_ps(x));
      }
    }
#pragma GCC unroll 6
    for (int v = 0; v < kVectors; ++v) {
      __m512 s;
      scales_of(squares[v], most[v], &s, &inverse[v]);
      _mm512_storeu_ps(scale + 16 * v, s);
    }
    for (std::int64_t p = 0; p < k; p += 2) {
#pragma GCC unroll 6
      for (int v = 0; v < kVectors; ++v) {
        const float* x = from + p * ld + 16 * v;
        const __m512i low = round_scaled(_mm512_maskz_loadu_ps(lanes[v], x), inverse[v]);
        const __m512i high = round_scaled(_mm512_maskz_loadu_ps(p + 1 < k ? lanes[v] : __mmask16{0}, x + ld), inverse[v]);
        _mm512_storeu_si512(to + p / 2 * pair_stride + place(v), _mm512_mask_blend_epi16(0xaaaaaaaaU, low, _mm512_slli_epi32(high, 16)));
      }
    }
  }

  // One strip of b from rows along k: through whole numbers, then turned.
  DORMOUSE_VNNI static void round_strip_transposed(const float* from, std::int64_t ld, std::int64_t columns, std::int64_t k, Pair* to,
                                                   float* scale) {
    alignas(64) Pair rows[kStrip * kRowStride];
    round_rows(from, ld, columns, k, rows, scale);
    for (std::int64_t i = columns; i < kStrip; ++i) scale[i] = 0;
    const __m512i apart = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                             _mm512_set1_epi32(static_cast<int>(kRowStride)));
    for (std::int64_t p = 0; p < pairs_of(k); ++p) {
      for (std::int64_t i = 0; i < kStrip; i += 16) {
        const __m512i v =
            _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), first_lanes(columns - i), apart, rows + i * kRowStride + p, 4);
        _mm512_storeu_si512(to + p * kStrip + i, v);
      }
    }
  }

  // c [kRows, kStrip] = or += a b over `pairs`.
  DORMOUSE_VNNI static void micro(std::int64_t pairs, const Rows& a, const Pair* b, const float* b_scale, float* c, std::int64_t ldc,
                                  bool add) {
    __m512i sum0[kRows], sum1[kRows];
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) sum0[i] = sum1[i] = _mm512_setzero_si512();
    const std::int64_t row = a.row, pair = a.pair;
    const Pair *a0 = a.data, *a3 = a0 + 3 * row, *a6 = a3 + 3 * row, *a9 = a6 + 3 * row;
    for (std::int64_t p = 0; p < pairs; ++p) {
      const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i) {
        const Pair* at = (i < 3 ? a0 : i < 6 ? a3 : i < 9 ? a6 : a9) + i % 3 * row;
        const __m512i x = _mm512_set1_epi32(*at);
        add_pair_products(sum0[i], x, b0);
        add_pair_products(sum1[i], x, b1);
      }
      a0 += pair, a3 += pair, a6 += pair, a9 += pair;
      b += kStrip;
    }
    const __m512 scale0 = _mm512_loadu_ps(b_scale), scale1 = _mm512_loadu_ps(b_scale + 16);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const __m512 scale = _mm512_set1_ps(a.scale[i]);
      __m512 y0 = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum0[i]), scale), scale0);
      __m512 y1 = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum1[i]), scale), scale1);
      float* to = c + i * ldc;
      if (add) {
        y0 = _mm512_add_ps(_mm512_loadu_ps(to), y0);
        y1 = _mm512_add_ps(_mm512_loadu_ps(to + 16), y1);
      }
      _mm512_storeu_ps(to, y0);
      _mm512_storeu_ps(to + 16, y1);
    }
  }
};

}  // namespace dormouse::ops::cpu
#endif
