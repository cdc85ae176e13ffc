// adamw, sum_squares, normalize_rows, normalize_columns.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/optimize.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/parallel.h"

#ifndef DORMOUSE_OPS_CPU_OPTIMIZE_TYPES
#define DORMOUSE_OPS_CPU_OPTIMIZE_TYPES
namespace dormouse::ops::cpu {
struct AdamW {
  float lr, beta1, beta2, eps, weight_decay, bias1, bias2, grad_scale;
};
}  // namespace dormouse::ops::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

void AdamWRange(std::int64_t n, const AdamW& a, const float* HWY_RESTRICT g, float* HWY_RESTRICT m, float* HWY_RESTRICT v,
                float* HWY_RESTRICT w) {
  const float keep = 1.0f - a.lr * a.weight_decay;
  each(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto gv = hn::Mul(hn::LoadU(d, g + i), hn::Set(d, a.grad_scale));
    const auto mv = hn::MulAdd(hn::Set(d, a.beta1), hn::LoadU(d, m + i), hn::Mul(hn::Set(d, 1.0f - a.beta1), gv));
    const auto vv = hn::MulAdd(hn::Set(d, a.beta2), hn::LoadU(d, v + i), hn::Mul(hn::Set(d, 1.0f - a.beta2), hn::Mul(gv, gv)));
    hn::StoreU(mv, d, m + i);
    hn::StoreU(vv, d, v + i);
    const auto root = hn::Add(hn::Sqrt(hn::Div(vv, hn::Set(d, a.bias2))), hn::Set(d, a.eps));
    const auto step = hn::Div(hn::Div(mv, hn::Set(d, a.bias1)), root);
    hn::StoreU(hn::NegMulAdd(hn::Set(d, a.lr), step, hn::Mul(hn::LoadU(d, w + i), hn::Set(d, keep))), d, w + i);
  });
}

double SumSquaresRange(std::int64_t n, const float* HWY_RESTRICT x) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d);
  auto s1 = s0;
  auto s2 = s0;
  auto s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    const auto x0 = hn::PromoteTo(d, hn::LoadU(df, x + i));
    const auto x1 = hn::PromoteTo(d, hn::LoadU(df, x + i + step));
    const auto x2 = hn::PromoteTo(d, hn::LoadU(df, x + i + 2 * step));
    const auto x3 = hn::PromoteTo(d, hn::LoadU(df, x + i + 3 * step));
    s0 = hn::MulAdd(x0, x0, s0);
    s1 = hn::MulAdd(x1, x1, s1);
    s2 = hn::MulAdd(x2, x2, s2);
    s3 = hn::MulAdd(x3, x3, s3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

void NormalizeRowsRange(std::int64_t rows, std::int64_t cols, float floor, float* x) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* xr = x + r * cols;
    const auto norm = static_cast<float>(std::sqrt(SumSquaresRange(cols, xr)));
    const float scale = 1.0f / (norm > floor ? norm : floor);
    each(cols, [&](auto d, std::int64_t j) HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, xr + j), hn::Set(d, scale)), d, xr + j); });
  }
}

void AddSquares(std::int64_t rows, std::int64_t cols, const float* HWY_RESTRICT x, float* HWY_RESTRICT sums) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* xr = x + r * cols;
    each(cols, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto v = hn::LoadU(d, xr + j);
      hn::StoreU(hn::MulAdd(v, v, hn::LoadU(d, sums + j)), d, sums + j);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {

HWY_EXPORT(AdamWRange);
HWY_EXPORT(SumSquaresRange);
HWY_EXPORT(NormalizeRowsRange);
HWY_EXPORT(AddSquares);

void adamw(std::int64_t n, float lr, float beta1, float beta2, float eps, float weight_decay, float bias1, float bias2, float grad_scale,
           const float* g, float* m, float* v, float* w) {
  const AdamW a{lr, beta1, beta2, eps, weight_decay, bias1, bias2, grad_scale};
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamWRange);
  for_ranges(n, 1024, n, [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, a, g + begin, m + begin, v + begin, w + begin); });
}

double sum_squares(std::int64_t n, const float* x) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SumSquaresRange);
  const RowBlocks blocks(n, 1024, 4096);
  auto* sums = static_cast<double*>(scratch_bytes(Slot::partials, static_cast<std::size_t>(blocks.count + 1) * sizeof(double)));
  for_blocks(blocks, n, [&](std::int64_t block, std::int64_t begin, std::int64_t end) { sums[block] = kernel(end - begin, x + begin); });
  double sum = 0;
  for (std::int64_t i = 0; i < blocks.count; ++i) sum += sums[i];
  return sum;
}

void normalize_rows(std::int64_t rows, std::int64_t cols, float floor, float* x) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(NormalizeRowsRange);
  for_ranges(rows, 8, rows * cols, [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, cols, floor, x + begin * cols); });
}

void normalize_columns(std::int64_t rows, std::int64_t cols, float floor, float* x) {
  const auto square = HWY_DYNAMIC_DISPATCH(AddSquares);
  const RowBlocks blocks(rows);
  const Partials partials(blocks, cols);
  for_blocks(blocks, rows * cols, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    square(end - begin, cols, x + begin * cols, partials.row(block));
  });
  float* scale = scratch(Slot::tile, cols + 1);
  for (std::int64_t j = 0; j < cols; ++j) scale[j] = 0;
  partials.add_to(0, cols, scale);
  for (std::int64_t j = 0; j < cols; ++j) scale[j] = 1.0f / std::max(std::sqrt(scale[j]), floor);
  scale_columns({rows, cols, 0}, x, scale, nullptr, x);
}

}  // namespace dormouse::ops::cpu
#endif
