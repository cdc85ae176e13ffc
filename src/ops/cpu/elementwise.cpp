// silu, sigmoid, axpy, add_row, scale_columns.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

void Silu(std::int64_t n, const float* HWY_RESTRICT x, float* HWY_RESTRICT y) {
  each(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i);
    hn::StoreU(hn::Mul(v, sigmoid(d, v)), d, y + i);
  });
}

void SiluBackward(std::int64_t n, const float* HWY_RESTRICT x, const float* HWY_RESTRICT dy, float* HWY_RESTRICT dx) {
  each(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i);
    add_store(d, hn::Mul(hn::LoadU(d, dy + i), silu_slope(d, v, sigmoid(d, v))), dx + i);
  });
}

void Sigmoid(std::int64_t n, const float* HWY_RESTRICT x, float* HWY_RESTRICT y) {
  each(n, [&](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(sigmoid(d, hn::LoadU(d, x + i)), d, y + i); });
}

void SigmoidBackward(std::int64_t n, const float* HWY_RESTRICT y, const float* HWY_RESTRICT dy, float* HWY_RESTRICT dx) {
  each(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto s = hn::LoadU(d, y + i);
    add_store(d, hn::Mul(hn::LoadU(d, dy + i), hn::NegMulAdd(s, s, s)), dx + i);
  });
}

void Axpy(std::int64_t n, float alpha, const float* x, float* y) {
  each(n, [&](auto d, std::int64_t i)
              HWY_ATTR { hn::StoreU(hn::MulAdd(hn::Set(d, alpha), hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i); });
}

void AddRow(std::int64_t rows, std::int64_t width, const float* HWY_RESTRICT x, const float* HWY_RESTRICT e, float* HWY_RESTRICT y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    each(width, [&](auto d, std::int64_t j)
                    HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, x + r * width + j), hn::LoadU(d, e + j)), d, y + r * width + j); });
  }
}

void AddRowBackward(std::int64_t rows, std::int64_t width, const float* HWY_RESTRICT dy, float* HWY_RESTRICT dx, float* HWY_RESTRICT de) {
  for (std::int64_t r = 0; r < rows; ++r) {
    each(width, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto v = hn::LoadU(d, dy + r * width + j);
      if (dx != nullptr) add_store(d, v, dx + r * width + j);
      if (de != nullptr) add_store(d, v, de + j);
    });
  }
}

void ScaleColumnsRows(std::int64_t rows, std::int64_t k, std::int64_t p_stride, const float* HWY_RESTRICT x, const float* HWY_RESTRICT s,
                      const float* HWY_RESTRICT p, float* HWY_RESTRICT y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float factor = p == nullptr ? 1.0f : p[r * p_stride];
    each(k, [&](auto d, std::int64_t j) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + r * k + j), hn::LoadU(d, s + j)), hn::Set(d, factor)), d, y + r * k + j);
    });
  }
}

void ScaleColumnsRowsBackward(std::int64_t rows, std::int64_t k, std::int64_t p_stride, const float* HWY_RESTRICT x,
                              const float* HWY_RESTRICT s, const float* HWY_RESTRICT p, const float* HWY_RESTRICT dy,
                              float* HWY_RESTRICT dx, float* HWY_RESTRICT ds, float* HWY_RESTRICT dp) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* xr = x + r * k;
    const float* dyr = dy + r * k;
    const float factor = p == nullptr ? 1.0f : p[r * p_stride];
    if (dp != nullptr) {
      dp[r * p_stride] += sum_of(k, [&](auto d, std::int64_t j) HWY_ATTR {
        return hn::Mul(hn::Mul(hn::LoadU(d, dyr + j), hn::LoadU(d, xr + j)), hn::LoadU(d, s + j));
      });
    }
    each(k, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto g = hn::Mul(hn::LoadU(d, dyr + j), hn::Set(d, factor));
      if (dx != nullptr) add_store(d, hn::Mul(g, hn::LoadU(d, s + j)), dx + r * k + j);
      if (ds != nullptr) add_store(d, hn::Mul(g, hn::LoadU(d, xr + j)), ds + j);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {

HWY_EXPORT(Silu);
HWY_EXPORT(SiluBackward);
HWY_EXPORT(Sigmoid);
HWY_EXPORT(SigmoidBackward);
HWY_EXPORT(Axpy);
HWY_EXPORT(AddRow);
HWY_EXPORT(AddRowBackward);
HWY_EXPORT(ScaleColumnsRows);
HWY_EXPORT(ScaleColumnsRowsBackward);

namespace {
constexpr std::int64_t kGrain = 1024;  // elements
}

void silu(std::int64_t n, const float* x, float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(Silu);
  for_ranges(n, kGrain, n, [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, x + begin, y + begin); });
}

void silu_backward(std::int64_t n, const float* x, const float* dy, float* dx) {
  if (dx == nullptr) return;
  const auto kernel = HWY_DYNAMIC_DISPATCH(SiluBackward);
  for_ranges(n, kGrain, n, [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, x + begin, dy + begin, dx + begin); });
}

void sigmoid(std::int64_t n, const float* x, float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(Sigmoid);
  for_ranges(n, kGrain, n, [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, x + begin, y + begin); });
}

void sigmoid_backward(std::int64_t n, const float* y, const float* dy, float* dx) {
  if (dx == nullptr) return;
  const auto kernel = HWY_DYNAMIC_DISPATCH(SigmoidBackward);
  for_ranges(n, kGrain, n, [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, y + begin, dy + begin, dx + begin); });
}

void axpy(std::int64_t n, float alpha, const float* x, float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(Axpy);
  for_ranges(n, kGrain, n, [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, alpha, x + begin, y + begin); });
}

void add_row(std::int64_t rows, std::int64_t d, const float* x, const float* e, float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(AddRow);
  for_ranges(rows, 8, rows * d, [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, d, x + begin * d, e, y + begin * d); });
}

void add_row_backward(std::int64_t rows, std::int64_t d, const float* dy, float* dx, float* de) {
  if (dx == nullptr && de == nullptr) return;
  const auto kernel = HWY_DYNAMIC_DISPATCH(AddRowBackward);
  const RowBlocks blocks(rows);
  const Partials partials(blocks, de == nullptr ? 0 : d);
  for_blocks(blocks, rows * d, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    kernel(end - begin, d, dy + begin * d, dx == nullptr ? nullptr : dx + begin * d, de == nullptr ? nullptr : partials.row(block));
  });
  partials.add_to(0, d, de);
}

void scale_columns(const ScaleColumns& shape, const float* x, const float* s, const float* p, float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleColumnsRows);
  const std::int64_t k = shape.k;
  for_ranges(shape.rows, 8, shape.rows * k, [&](std::int64_t begin, std::int64_t end) {
    kernel(end - begin, k, shape.p_stride, x + begin * k, s, p == nullptr ? nullptr : p + begin * shape.p_stride, y + begin * k);
  });
}

void scale_columns_backward(const ScaleColumns& shape, const float* x, const float* s, const float* p, const float* dy, float* dx,
                            float* ds, float* dp) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleColumnsRowsBackward);
  const std::int64_t k = shape.k;
  const RowBlocks blocks(shape.rows);
  const Partials partials(blocks, ds == nullptr ? 0 : k);
  for_blocks(blocks, shape.rows * k, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    kernel(end - begin, k, shape.p_stride, x + begin * k, s, p == nullptr ? nullptr : p + begin * shape.p_stride, dy + begin * k,
           dx == nullptr ? nullptr : dx + begin * k, ds == nullptr ? nullptr : partials.row(block),
           dp == nullptr ? nullptr : dp + begin * shape.p_stride);
  });
  partials.add_to(0, k, ds);
}

}  // namespace dormouse::ops::cpu
#endif
