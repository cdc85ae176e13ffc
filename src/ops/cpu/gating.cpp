// decay (Highway) and gates (a few columns per row: plain C++).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/gating.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

// steep [heads] = exp(clamp(a_log))
void DecayRows(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, float g_min, const float* HWY_RESTRICT zeta,
               const float* HWY_RESTRICT steep, const float* HWY_RESTRICT bias, float* HWY_RESTRICT g) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = (r * heads + h) * head_dim;
      each(head_dim, [&](auto d, std::int64_t j) HWY_ATTR {
        const auto x = hn::Add(hn::LoadU(d, zeta + at + j), hn::LoadU(d, bias + h * head_dim + j));
        hn::StoreU(hn::Mul(hn::Set(d, g_min), sigmoid(d, hn::Mul(hn::Set(d, steep[h]), x))), d, g + at + j);
      });
    }
  }
}

// With s = g / g_min, the slope of g in steep*(zeta+bias) is g (1 - s).
void DecayRowsBackward(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, float g_min, const float* HWY_RESTRICT zeta,
                       const float* HWY_RESTRICT steep, const float* HWY_RESTRICT bias, const float* HWY_RESTRICT g,
                       const float* HWY_RESTRICT dg, float* HWY_RESTRICT dzeta, float* HWY_RESTRICT da_log, float* HWY_RESTRICT dbias) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = (r * heads + h) * head_dim;
      const float* bias_h = bias + h * head_dim;
      const float inverse = 1.0f / g_min;
      const auto slope = [&](auto d, std::int64_t j) HWY_ATTR {  // dg/dzeta * dg
        const auto gv = hn::LoadU(d, g + at + j);
        const auto rest = hn::Mul(hn::Sub(hn::Set(d, g_min), gv), hn::Set(d, inverse));  // 1 - s, exactly 0 at g = g_min
        return hn::Mul(hn::Mul(hn::LoadU(d, dg + at + j), hn::Mul(gv, rest)), hn::Set(d, steep[h]));
      };
      if (da_log != nullptr) {
        da_log[h] += sum_of(head_dim, [&](auto d, std::int64_t j) HWY_ATTR {
          return hn::Mul(slope(d, j), hn::Add(hn::LoadU(d, zeta + at + j), hn::LoadU(d, bias_h + j)));
        });
      }
      each(head_dim, [&](auto d, std::int64_t j) HWY_ATTR {
        const auto t = slope(d, j);
        if (dzeta != nullptr) add_store(d, t, dzeta + at + j);
        if (dbias != nullptr) add_store(d, t, dbias + h * head_dim + j);
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {

HWY_EXPORT(DecayRows);
HWY_EXPORT(DecayRowsBackward);

namespace {

constexpr float kLogSteepLow = -10.0f;
constexpr float kLogSteepHigh = 20.0f;

float* steepness(std::int64_t heads, const float* a_log) {
  float* steep = scratch(Slot::tile, heads + 1);
  for (std::int64_t h = 0; h < heads; ++h) steep[h] = std::exp(std::clamp(a_log[h], kLogSteepLow, kLogSteepHigh));
  return steep;
}

float logistic(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace

void decay(const Decay& shape, const float* zeta, const float* a_log, const float* bias, float* g) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(DecayRows);
  const std::int64_t width = shape.heads * shape.head_dim;
  const float* steep = steepness(shape.heads, a_log);
  for_ranges(shape.rows, 8, shape.rows * width, [&](std::int64_t begin, std::int64_t end) {
    kernel(end - begin, shape.heads, shape.head_dim, static_cast<float>(shape.g_min), zeta + begin * width, steep, bias, g + begin * width);
  });
}

void decay_backward(const Decay& shape, const float* zeta, const float* a_log, const float* bias, const float* g, const float* dg,
                    float* dzeta, float* da_log, float* dbias) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(DecayRowsBackward);
  const std::int64_t width = shape.heads * shape.head_dim;
  const float* steep = steepness(shape.heads, a_log);
  const RowBlocks blocks(shape.rows);
  const std::int64_t head_offset = round_up(width, 16);  // partial row: dbias, then da_log
  const Partials partials(blocks, head_offset + shape.heads);
  for_blocks(blocks, shape.rows * width, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    float* sums = partials.row(block);
    kernel(end - begin, shape.heads, shape.head_dim, static_cast<float>(shape.g_min), zeta + begin * width, steep, bias, g + begin * width,
           dg + begin * width, dzeta == nullptr ? nullptr : dzeta + begin * width, da_log == nullptr ? nullptr : sums + head_offset,
           dbias == nullptr ? nullptr : sums);
  });
  partials.add_to(0, width, dbias);
  if (da_log != nullptr) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const bool inside = a_log[h] >= kLogSteepLow && a_log[h] <= kLogSteepHigh;
      if (inside) partials.add_to(head_offset + h, 1, da_log + h);
    }
  }
}

void gates(const Gates& shape, const float* c, float* gates) {
  const std::int64_t outputs = 3 + shape.experts;
  const auto lam_max = static_cast<float>(shape.lam_max);
  for_ranges(shape.rows, 8, shape.rows * outputs * 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* cr = c + r * shape.width;
      float* out = gates + r * outputs;
      out[0] = logistic(cr[0]);
      out[1] = shape.smooth ? lam_max * logistic(cr[1]) : std::min(logistic(cr[1]), lam_max);
      out[2] = logistic(cr[2]);
      if (shape.experts == 0) continue;
      const float top = *std::max_element(cr + 3, cr + outputs);
      float sum = 0;
      for (std::int64_t e = 3; e < outputs; ++e) sum += out[e] = std::exp(cr[e] - top);
      for (std::int64_t e = 3; e < outputs; ++e) out[e] /= sum;
    }
  });
}

void gates_backward(const Gates& shape, const float* /*c*/, const float* gates, const float* dgates, float* dc) {
  if (dc == nullptr) return;
  const std::int64_t outputs = 3 + shape.experts;
  const auto lam_max = static_cast<float>(shape.lam_max);
  for_ranges(shape.rows, 8, shape.rows * outputs * 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* p = gates + r * outputs;
      const float* dp = dgates + r * outputs;
      float* to = dc + r * shape.width;
      to[0] += dp[0] * p[0] * (1.0f - p[0]);
      if (shape.smooth) {
        to[1] += dp[1] * p[1] * (1.0f - p[1] / lam_max);
      } else if (p[1] < lam_max) {
        to[1] += dp[1] * p[1] * (1.0f - p[1]);
      }
      to[2] += dp[2] * p[2] * (1.0f - p[2]);
      float dot = 0;
      for (std::int64_t e = 3; e < outputs; ++e) dot += p[e] * dp[e];
      for (std::int64_t e = 3; e < outputs; ++e) to[e] += p[e] * (dp[e] - dot);
    }
  });
}

}  // namespace dormouse::ops::cpu
#endif
