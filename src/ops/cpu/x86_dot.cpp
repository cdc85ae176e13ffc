// Dot products of bytes (VPDPBUSD).
#include <algorithm>

#include "ops/cpu/narrow_kernels.h"
#include "ops/cpu/vnni.h"

namespace dormouse::ops::cpu {

#if defined(__x86_64__)
namespace {

constexpr int kVectors = 2;  // of 16 columns: a strip

// The digits of four rows of W, in every lane.
DORMOUSE_VNNI inline __m512i four_digits(const std::int8_t* from) {
  std::int32_t four;
  __builtin_memcpy(&four, from, 4);
  return _mm512_set1_epi32(four);
}

// kRows rows of x against kStrips strips. Every loop over sums is unrolled, so that they live in registers.
template <bool kTernary, int kRows, int kStrips>
DORMOUSE_VNNI void strips_of_rows(const StripRange& range, std::int64_t strip, const Digits& x, std::int64_t row) {
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
          const __m512i h = four_digits(x_high + at), l = four_digits(x_low + at);
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
    const auto lanes = static_cast<__mmask16>((1U << std::clamp<std::int64_t>(n - first - c, 0, 16)) - 1U);
    const __m512i all_high = _mm512_load_si512(sums[0] + 16 * i), all_low = _mm512_load_si512(sums[1] + 16 * i);
    const __m512 h = _mm512_cvtepi32_ps(_mm512_sub_epi32(all_high, _mm512_set1_epi32(offset * x.sum_high[r])));
    const __m512 l = _mm512_cvtepi32_ps(_mm512_sub_epi32(all_low, _mm512_set1_epi32(offset * x.sum_low[r])));
    const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x.scale[r]), _mm512_maskz_loadu_ps(lanes, scales + c));
    _mm512_mask_storeu_ps(range.y + r * n + first + c, lanes, _mm512_mul_ps(_mm512_fmadd_ps(h, _mm512_set1_ps(256), l), scale));
  }
}

// Rows [row, x.rows) in groups of kRows, then the rest in smaller ones. Fewer rows: more columns, for as many sums under way.
template <bool kTernary, int kRows>
void rows_of(const StripRange& range, const Digits& x, std::int64_t row) {
  constexpr int kStrips = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  for (; row + kRows <= x.rows; row += kRows) {
    std::int64_t strip = range.first;
    for (; strip + kStrips <= range.last; strip += kStrips) strips_of_rows<kTernary, kRows, kStrips>(range, strip, x, row);
    if constexpr (kStrips > 1) {
      for (; strip < range.last; ++strip) strips_of_rows<kTernary, kRows, 1>(range, strip, x, row);
    }
  }
  if constexpr (kRows > 1) rows_of<kTernary, kRows == 6 ? 4 : kRows / 2>(range, x, row);
}

// Few strips at a time, so that they stay in the cache while all rows pass.
template <bool kTernary>
void all_strips(StripRange range, const Digits& x) {
  const std::int64_t last = range.last;
  for (; range.first < last; range.first += 4) {
    range.last = std::min(last, range.first + 4);
    rows_of<kTernary, 6>(range, x, 0);
  }
}

}  // namespace

void dot_strips_vnni(const StripRange& range, const Digits& x) {
  if (range.w->type() == Narrow::ternary) {
    all_strips<true>(range, x);
  } else {
    all_strips<false>(range, x);
  }
}

#else

void dot_strips_vnni(const StripRange&, const Digits&) {}

#endif

}  // namespace dormouse::ops::cpu
