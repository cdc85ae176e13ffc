// Tiles of 16-bit whole numbers with VPMADDWD: for native_i16().
#pragma once

#include "ops/cpu/avx2.h"
#include "ops/cpu/i16_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace dormouse::ops::cpu {

struct I16Avx2 {
  static constexpr std::int64_t kLanes = 8;
  static constexpr std::int64_t kRows = 6;  // of a tile: 6 x 2 sums, their two columns, one factor and one product are 16 registers
  static constexpr std::int64_t kStrip = 16;

  // All bits of the first `count` of 8 lanes, none or all beyond.
  DORMOUSE_AVX2 static __m256i first_lanes(std::int64_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(std::clamp<std::int64_t>(count, 0, 8))), lane);
  }
  DORMOUSE_AVX2 static __m256 magnitude(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x); }
  DORMOUSE_AVX2 static __m256i round_scaled(__m256 x, __m256 inverse) { return _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse)); }

  // Rows whose elements along k are neighbours: `rows` of them, k elements, to kRowStride pairs apart, filled with 0 to 8 pairs.
  DORMOUSE_AVX2 static void round_rows(const float* from, std::int64_t ld, std::int64_t rows, std::int64_t k, Pair* to, float* scale) {
    static_assert(kI16Block % 16 == 0 && kRowStride * 2 >= kI16Block);
    const std::int64_t whole = k / 16 * 16;
    const __m256i tail[2] = {first_lanes(k - whole), first_lanes(k - whole - 8)};
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto load = [&](std::int64_t p, int half) DORMOUSE_AVX2 {
        const float* x = from + r * ld + p + 8 * half;
        return p < whole ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, tail[half]);
      };
      __m256 squares[2] = {}, most[2] = {};
      for (std::int64_t p = 0; p < k; p += 16) {
        for (int half = 0; half < 2; ++half) {
          const __m256 v = load(p, half);
          squares[half] = _mm256_fmadd_ps(v, v, squares[half]);
          most[half] = _mm256_max_ps(most[half], magnitude(v));
        }
      }
      alignas(32) float sums[8], largest[8];
      _mm256_store_ps(sums, _mm256_add_ps(squares[0], squares[1]));
      _mm256_store_ps(largest, _mm256_max_ps(most[0], most[1]));
      for (int i = 1; i < 8; ++i) {
        sums[0] += sums[i];
        largest[0] = std::max(largest[0], largest[i]);
      }
      const Scale s = scale_of(sums[0], largest[0]);
      scale[r] = s.scale;
      const __m256 inverse = _mm256_set1_ps(s.inverse);
      auto* out = reinterpret_cast<std::int16_t*>(to + r * kRowStride);
      for (std::int64_t p = 0; p < k; p += 16) {  // sixteen, in order
        const __m256i mixed = _mm256_packs_epi32(round_scaled(load(p, 0), inverse), round_scaled(load(p, 1), inverse));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + p), _mm256_permute4x64_epi64(mixed, 0xd8));
      }
    }
  }

  // Columns whose elements along k are `ld` apart, for kVectors * 8 columns of which `columns` exist: pair p of column 8 v + i goes to
  // to[p * pair_stride + place(v) + i]. Zeros beyond `columns`.
  template <int kVectors, class Place>
  DORMOUSE_AVX2 static void round_columns(const float* from, std::int64_t ld, std::int64_t columns, std::int64_t k,
                                          std::int64_t pair_stride, Pair* to, const Place& place, float* scale) {
    constexpr int kTogether = kVectors % 4 == 0 ? 4 : 2;
    static_assert(kVectors % kTogether == 0);
    for (int first = 0; first < kVectors; first += kTogether) {
      __m256i lanes[kTogether];
      __m256 squares[kTogether], most[kTogether], inverse[kTogether];
      alignas(32) float sums[8], largest[8], inverses[8];
#pragma GCC unroll 4
      for (int v = 0; v < kTogether; ++v) {
        lanes[v] = first_lanes(columns - 8 * (first + v));
        squares[v] = most[v] = _mm256_setzero_ps();
      }
      const float* x = from + 8 * first;
      for (std::int64_t p = 0; p < k; ++p) {
#pragma GCC unroll 4
        for (int v = 0; v < kTogether; ++v) {
          const __m256 one = _mm256_maskload_ps(x + p * ld + 8 * v, lanes[v]);
          squares[v] = _mm256_fmadd_ps(one, one, squares[v]);
          most[v] = _mm256_max_ps(most[v], magnitude(one));
        }
      }
#pragma GCC unroll 4
      for (int v = 0; v < kTogether; ++v) {
        _mm256_store_ps(sums, squares[v]);
        _mm256_store_ps(largest, most[v]);
        for (int i = 0; i < 8; ++i) {
          const Scale s = scale_of(sums[i], largest[i]);
          scale[8 * (first + v) + i] = s.scale;
          inverses[i] = s.inverse;
        }
        inverse[v] = _mm256_load_ps(inverses);
      }
      for (std::int64_t p = 0; p < k; p += 2) {
        const __m256i second = _mm256_set1_epi32(p + 1 < k ? -1 : 0);
#pragma GCC unroll 4
        for (int v = 0; v < kTogether; ++v) {
          const float* at = x + p * ld + 8 * v;
          const __m256i low = round_scaled(_mm256_maskload_ps(at, lanes[v]), inverse[v]);
          const __m256i high = round_scaled(_mm256_maskload_ps(at + ld, _mm256_and_si256(lanes[v], second)), inverse[v]);
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + p / 2 * pair_stride + place(first + v)),
                              _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa));
        }
      }
    }
  }

  // One strip of b from rows along k: through whole numbers, then turned.
  DORMOUSE_AVX2 static void round_strip_transposed(const float* from, std::int64_t ld, std::int64_t columns, std::int64_t k, Pair* to,
                                                   float* scale) {
    alignas(32) Pair rows[kStrip * kRowStride];
    round_rows(from, ld, columns, k, rows, scale);
    const std::int64_t pairs = pairs_of(k);
    for (std::int64_t i = columns; i < kStrip; ++i) {
      scale[i] = 0;
      std::fill_n(rows + i * kRowStride, (pairs + 7) / 8 * 8, 0);
    }
    for (std::int64_t p = 0; p < pairs; p += 8) {
      for (std::int64_t i = 0; i < kStrip; i += 8)
        turn(rows + i * kRowStride + p, std::min<std::int64_t>(8, pairs - p), to + p * kStrip + i);
    }
  }

  // c [kRows, kStrip] = or += a b over `pairs`.
  DORMOUSE_AVX2 static void micro(std::int64_t pairs, const Rows& a, const Pair* b, const float* b_scale, float* c, std::int64_t ldc,
                                  bool add) {
    __m256i sum0[kRows], sum1[kRows];
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) sum0[i] = sum1[i] = _mm256_setzero_si256();
    const std::int64_t row = a.row, pair = a.pair;
    const Pair *a0 = a.data, *a3 = a0 + 3 * row;
    for (std::int64_t p = 0; p < pairs; ++p) {
      const __m256i b0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
      const __m256i b1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 8));
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
        // (i < 3 ? a0 : a3)[i % 3 * row] reads the wrong rows when GCC 12 compiles it with -fsanitize=undefined.
        const __m256i x = _mm256_set1_epi32(i < 3 ? a0[i * row] : a3[(i - 3) * row]);
        add_pair_products(sum0[i], x, b0);
        add_pair_products(sum1[i], x, b1);
      }
      a0 += pair, a3 += pair;
      b += kStrip;
    }
    const __m256 scale0 = _mm256_loadu_ps(b_scale), scale1 = _mm256_loadu_ps(b_scale + 8);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m256 scale = _mm256_set1_ps(a.scale[i]);
      __m256 y0 = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum0[i]), scale), scale0);
      __m256 y1 = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum1[i]), scale), scale1);
      float* to = c + i * ldc;
      if (add) {
        y0 = _mm256_add_ps(_mm256_loadu_ps(to), y0);
        y1 = _mm256_add_ps(_mm256_loadu_ps(to + 8), y1);
      }
      _mm256_storeu_ps(to, y0);
      _mm256_storeu_ps(to + 8, y1);
    }
  }

 private:
  // Eight rows, kRowStride apart, of eight pairs become `pairs` rows of eight, kStrip apart.
  DORMOUSE_AVX2 static void turn(const Pair* from, std::int64_t pairs, Pair* to) {
    __m256i x[8], y[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) x[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * kRowStride));
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      y[i] = _mm256_unpacklo_epi32(x[i], x[i + 1]);
      y[i + 1] = _mm256_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {  // x[i + j]: pair j and pair 4 + j of four rows
      x[i] = _mm256_unpacklo_epi64(y[i], y[i + 2]);
      x[i + 1] = _mm256_unpackhi_epi64(y[i], y[i + 2]);
      x[i + 2] = _mm256_unpacklo_epi64(y[i + 1], y[i + 3]);
      x[i + 3] = _mm256_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      y[j] = _mm256_permute2x128_si256(x[j], x[4 + j], 0x20);
      y[4 + j] = _mm256_permute2x128_si256(x[j], x[4 + j], 0x31);
    }
    for (std::int64_t p = 0; p < pairs; ++p) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + p * kStrip), y[p]);
  }
};

}  // namespace dormouse::ops::cpu
#endif
