// Dot products of bytes (VPDPBUSD) and of pairs of 16-bit whole numbers (VPDPWSSD).
#include <algorithm>

#include "ops/cpu/narrow_kernels.h"
#include "ops/cpu/vnni.h"
#include "ops/gemm.h"

namespace dormouse::ops::cpu {

#if defined(__x86_64__)
namespace {

constexpr int kVectors = 2;  // of 16 columns: a strip

// What four rows of W (or two, of 16 bits) are multiplied with, in every lane.
DORMOUSE_VNNI inline __m512i everywhere(const void* four_bytes) {
  std::int32_t word;
  __builtin_memcpy(&word, four_bytes, 4);
  return _mm512_set1_epi32(word);
}

// 256 h + l, rounded once.
DORMOUSE_VNNI inline __m256 half_of(__m256i h, __m256i l) {
  return _mm512_cvtpd_ps(_mm512_fmadd_pd(_mm512_cvtepi32_pd(h), _mm512_set1_pd(256), _mm512_cvtepi32_pd(l)));
}
DORMOUSE_VNNI inline __m512 whole_of(__m512i h, __m512i l) {
  const __m256 first = half_of(_mm512_castsi512_si256(h), _mm512_castsi512_si256(l));
  const __m256 second = half_of(_mm512_extracti64x4_epi64(h, 1), _mm512_extracti64x4_epi64(l, 1));
  return _mm512_insertf32x8(_mm512_castps256_ps512(first), second, 1);
}

// The kernels of pass_all(). Every loop over sums is unrolled, so that they live in registers.
struct Passes {
  static constexpr int strips_of(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
};

template <bool kTernary>
struct Codes : Passes {
  static constexpr int kRowsTogether = 6;
  const Digits& x;
  explicit Codes(const Digits& rows) : x(rows) {}

  template <int kRows, int kStrips>
  DORMOUSE_VNNI void pass(const StripRange& range, std::int64_t strip, std::int64_t row) const {
    constexpr int kSums = kRows * kStrips * kVectors;
    constexpr int kPart = kTernary ? 4 : 1;  // groups of four rows of W in one load
    __m512i high[kSums], low[kSums];
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) high[i] = low[i] = _mm512_setzero_si512();
    const std::byte* panel = range.w->strip(strip);
    const std::size_t next = range.w->strip_bytes();
    const std::int64_t groups = (range.w->k() + 3) / 4;
    const __m512i mask = _mm512_set1_epi8(3);
    const std::int8_t *x_high = x.high + row * x.padded, *x_low = x.low + row * x.padded;
    for (std::int64_t g = 0; g < groups; g += kPart) {
#pragma GCC unroll 4
      for (int s = 0; s < kStrips; ++s) {
        __m512i w[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(panel + static_cast<std::size_t>(s) * next + 64 * v);
#pragma GCC unroll 4
        for (int part = 0; part < kPart; ++part) {
          __m512i codes[kVectors];
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v)
            codes[v] = kTernary ? _mm512_and_si512(_mm512_srli_epi32(w[v], static_cast<unsigned>(2 * part)), mask) : w[v];
#pragma GCC unroll 6
          for (int r = 0; r < kRows; ++r) {
            const std::int64_t at = r * x.padded + 4 * (g + part);
            const __m512i h = everywhere(x_high + at), l = everywhere(x_low + at);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
              const int i = (r * kStrips + s) * kVectors + v;
              high[i] = _mm512_dpbusd_epi32(high[i], codes[v], h);
              low[i] = _mm512_dpbusd_epi32(low[i], codes[v], l);
            }
          }
        }
      }
      panel += 64 * kVectors;
    }
    alignas(64) std::int32_t sums[2][kSums * 16];
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) {
      _mm512_store_si512(sums[0] + 16 * i, high[i]);
      _mm512_store_si512(sums[1] + 16 * i, low[i]);
    }
    const int offset = kTernary ? 1 : 128;
    const std::int64_t n = range.w->n(), first = strip * NarrowMatrix::kStrip;
    const float* scales = range.w->scales().data() + first;
    for (int i = 0; i < kSums; ++i) {
      const std::int64_t r = row + i / (kStrips * kVectors), c = i % (kStrips * kVectors) * 16;
      const __mmask16 lanes = first_lanes(n - first - c);
      const __m512i all_high = _mm512_load_si512(sums[0] + 16 * i), all_low = _mm512_load_si512(sums[1] + 16 * i);
      const __m512i h = _mm512_sub_epi32(all_high, _mm512_set1_epi32(offset * x.sum_high[r]));
      const __m512i l = _mm512_sub_epi32(all_low, _mm512_set1_epi32(offset * x.sum_low[r]));
      const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x.scale[r]), _mm512_maskz_loadu_ps(lanes, scales + c));
      _mm512_mask_storeu_ps(range.y + r * n + first + c, lanes, _mm512_mul_ps(whole_of(h, l), scale));
    }
  }
};

struct Pairs : Passes {
  static constexpr int kRowsTogether = 8;
  const Wholes& x;
  explicit Pairs(const Wholes& rows) : x(rows) {}

  template <int kRows, int kStrips>
  DORMOUSE_VNNI void pass(const StripRange& range, std::int64_t strip, std::int64_t row) const {
    constexpr int kSums = kRows * kStrips * kVectors;
    const std::int64_t n = range.w->n(), first = strip * NarrowMatrix::kStrip;
    const I16Blocks blocks(range.w->k());
    const std::byte* panel = range.w->strip(strip);
    const std::size_t next = range.w->strip_bytes();
    const float* scales = range.w->scales().data() + first;
    const std::int16_t* factors = x.whole + row * x.padded;
    alignas(64) float y[kSums * 16];  // of the blocks so far
    for (std::int64_t block = 0; block < blocks.count; ++block) {
      __m512i sums[kSums];
#pragma GCC unroll 16
      for (int i = 0; i < kSums; ++i) sums[i] = _mm512_setzero_si512();
      for (std::int64_t i = 0; i < blocks.depth(block); i += 2) {
#pragma GCC unroll 4
        for (int s = 0; s < kStrips; ++s) {
          __m512i w[kVectors];
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(panel + static_cast<std::size_t>(s) * next + 64 * v);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const __m512i pair = everywhere(factors + r * x.padded + i);
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) add_pair_products(sums[(r * kStrips + s) * kVectors + v], pair, w[v]);
          }
        }
        panel += 64 * kVectors;
      }
#pragma GCC unroll 16
      for (int i = 0; i < kSums; ++i) {
        const std::int64_t r = row + i / (kStrips * kVectors), c = i % (kStrips * kVectors) * 16;
        const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x.scale[r * blocks.count + block]), _mm512_loadu_ps(scales + c));
        const __m512 before = block == 0 ? _mm512_setzero_ps() : _mm512_load_ps(y + 16 * i);
        const __m512 now = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[i]), scale, before);
        if (block + 1 < blocks.count) {
          _mm512_store_ps(y + 16 * i, now);
        } else {
          _mm512_mask_storeu_ps(range.y + r * n + first + c, first_lanes(n - first - c), now);
        }
      }
      scales += range.w->strips() * NarrowMatrix::kStrip;
      factors += blocks.size;
    }
  }
};

}  // namespace

void dot_strips_vnni(const StripRange& range, const Digits& x) {
  if (range.w->type() == Narrow::ternary) {
    pass_all(Codes<true>(x), range, x.rows);
  } else {
    pass_all(Codes<false>(x), range, x.rows);
  }
}

void whole_strips_vnni(const StripRange& range, const Wholes& x) { pass_all(Pairs(x), range, x.rows); }

#else

void dot_strips_vnni(const StripRange&, const Digits&) {}
void whole_strips_vnni(const StripRange&, const Wholes&) {}

#endif

}  // namespace dormouse::ops::cpu
