// rms_norm, silu_head_norm, gated_head_norm.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE float sum_of_squares(std::int64_t n, const float* x) {
  return sum_of(n, [&](auto d, std::int64_t j) HWY_ATTR {
    const auto v = hn::LoadU(d, x + j);
    return hn::Mul(v, v);
  });
}

void RmsNormRows(std::int64_t rows, std::int64_t width, float eps, const float* HWY_RESTRICT x, const float* HWY_RESTRICT g,
                 float* HWY_RESTRICT y, float* HWY_RESTRICT inv) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* xr = x + r * width;
    float* yr = y + r * width;
    const float scale = 1.0f / std::sqrt(sum_of_squares(width, xr) / static_cast<float>(width) + eps);
    inv[r] = scale;
    each(width, [&](auto d, std::int64_t j)
                    HWY_ATTR { hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, xr + j), hn::Set(d, scale)), hn::LoadU(d, g + j)), d, yr + j); });
  }
}

void RmsNormRowsBackward(std::int64_t rows, std::int64_t width, const float* HWY_RESTRICT x, const float* HWY_RESTRICT g,
                         const float* HWY_RESTRICT inv, const float* HWY_RESTRICT dy, float* HWY_RESTRICT dx, float* HWY_RESTRICT dg) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* xr = x + r * width;
    const float* dyr = dy + r * width;
    const float scale = inv[r];
    if (dx != nullptr) {
      const float dot = sum_of(width, [&](auto d, std::int64_t j) HWY_ATTR {
        return hn::Mul(hn::Mul(hn::LoadU(d, g + j), hn::LoadU(d, dyr + j)), hn::LoadU(d, xr + j));
      });
      const float pull = scale * scale * (dot / static_cast<float>(width));
      float* dxr = dx + r * width;
      each(width, [&](auto d, std::int64_t j) HWY_ATTR {
        const auto direct = hn::Mul(hn::LoadU(d, g + j), hn::LoadU(d, dyr + j));
        const auto t = hn::NegMulAdd(hn::LoadU(d, xr + j), hn::Set(d, pull), direct);
        add_store(d, hn::Mul(t, hn::Set(d, scale)), dxr + j);
      });
    }
    if (dg != nullptr) {
      each(width, [&](auto d, std::int64_t j)
                      HWY_ATTR { add_store(d, hn::Mul(hn::Mul(hn::LoadU(d, xr + j), hn::Set(d, scale)), hn::LoadU(d, dyr + j)), dg + j); });
    }
  }
}

void SiluHeadNormRows(std::int64_t rows, std::int64_t width, float eps, const float* HWY_RESTRICT x, float* HWY_RESTRICT y,
                      float* HWY_RESTRICT inv) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* xr = x + r * width;
    float* yr = y + r * width;
    const float sum = sum_of(width, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto v = hn::LoadU(d, xr + j);
      const auto s = hn::Mul(v, sigmoid(d, v));
      hn::StoreU(s, d, yr + j);
      return hn::Mul(s, s);
    });
    const float scale = 1.0f / std::sqrt(sum + eps);
    inv[r] = scale;
    each(width, [&](auto d, std::int64_t j) HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, yr + j), hn::Set(d, scale)), d, yr + j); });
  }
}

// With s = silu(x), y = s*inv: ds = inv (dy - y (y.dy)).
void SiluHeadNormRowsBackward(std::int64_t rows, std::int64_t width, const float* HWY_RESTRICT x, const float* HWY_RESTRICT y,
                              const float* HWY_RESTRICT inv, const float* HWY_RESTRICT dy, float* HWY_RESTRICT dx) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* xr = x + r * width;
    const float* yr = y + r * width;
    const float* dyr = dy + r * width;
    float* dxr = dx + r * width;
    const float dot = sum_of(width, [&](auto d, std::int64_t j) HWY_ATTR { return hn::Mul(hn::LoadU(d, yr + j), hn::LoadU(d, dyr + j)); });
    const float scale = inv[r];
    each(width, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto v = hn::LoadU(d, xr + j);
      const auto ds = hn::Mul(hn::Set(d, scale), hn::NegMulAdd(hn::LoadU(d, yr + j), hn::Set(d, dot), hn::LoadU(d, dyr + j)));
      add_store(d, hn::Mul(ds, silu_slope(d, v, sigmoid(d, v))), dxr + j);
    });
  }
}

void GatedHeadNormRows(std::int64_t rows, std::int64_t width, float eps, const float* HWY_RESTRICT o, const float* HWY_RESTRICT z,
                       const float* HWY_RESTRICT w, float* HWY_RESTRICT y, float* HWY_RESTRICT inv) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* o_r = o + r * width;
    const float* zr = z + r * width;
    float* yr = y + r * width;
    const float scale = 1.0f / std::sqrt(sum_of_squares(width, o_r) / static_cast<float>(width) + eps);
    inv[r] = scale;
    each(width, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto hat = hn::Mul(hn::LoadU(d, o_r + j), hn::Set(d, scale));
      hn::StoreU(hn::Mul(hn::Mul(hat, hn::LoadU(d, w + j)), sigmoid(d, hn::LoadU(d, zr + j))), d, yr + j);
    });
  }
}

// With t = dy w sigma(z): d_o = inv (t - o inv^2 mean(t o)).
void GatedHeadNormRowsBackward(std::int64_t rows, std::int64_t width, const float* HWY_RESTRICT o, const float* HWY_RESTRICT z,
                               const float* HWY_RESTRICT w, const float* HWY_RESTRICT inv, const float* HWY_RESTRICT dy,
                               float* HWY_RESTRICT d_o, float* HWY_RESTRICT dz, float* HWY_RESTRICT dw) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* o_r = o + r * width;
    const float* zr = z + r * width;
    const float* dyr = dy + r * width;
    const float scale = inv[r];
    float pull = 0;
    if (d_o != nullptr) {
      const float dot = sum_of(width, [&](auto d, std::int64_t j) HWY_ATTR {
        const auto t = hn::Mul(hn::Mul(hn::LoadU(d, dyr + j), hn::LoadU(d, w + j)), sigmoid(d, hn::LoadU(d, zr + j)));
        return hn::Mul(t, hn::LoadU(d, o_r + j));
      });
      pull = scale * scale * (dot / static_cast<float>(width));
    }
    each(width, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto s = sigmoid(d, hn::LoadU(d, zr + j));
      const auto ov = hn::LoadU(d, o_r + j);
      const auto wv = hn::LoadU(d, w + j);
      const auto gated = hn::Mul(hn::LoadU(d, dyr + j), s);  // dy sigma(z)
      const auto hat = hn::Mul(ov, hn::Set(d, scale));
      if (d_o != nullptr) {
        const auto t = hn::NegMulAdd(ov, hn::Set(d, pull), hn::Mul(gated, wv));
        add_store(d, hn::Mul(t, hn::Set(d, scale)), d_o + r * width + j);
      }
      if (dw != nullptr) add_store(d, hn::Mul(gated, hat), dw + j);
      if (dz != nullptr) {
        const auto slope = hn::Mul(gated, hn::Sub(hn::Set(d, 1.0f), s));
        add_store(d, hn::Mul(slope, hn::Mul(hat, wv)), dz + r * width + j);
      }
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {

HWY_EXPORT(RmsNormRows);
HWY_EXPORT(RmsNormRowsBackward);
HWY_EXPORT(SiluHeadNormRows);
HWY_EXPORT(SiluHeadNormRowsBackward);
HWY_EXPORT(GatedHeadNormRows);
HWY_EXPORT(GatedHeadNormRowsBackward);

namespace {
float* at(float* data, std::int64_t offset) { return data == nullptr ? nullptr : data + offset; }
}  // namespace

void rms_norm(const RmsNorm& shape, const float* x, const float* g, float* y, float* inv) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(RmsNormRows);
  const std::int64_t d = shape.d;
  const auto eps = static_cast<float>(shape.eps);
  for_ranges(shape.rows, 8, shape.rows * d,
             [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, d, eps, x + begin * d, g, y + begin * d, inv + begin); });
}

void rms_norm_backward(const RmsNorm& shape, const float* x, const float* g, const float* inv, const float* dy, float* dx, float* dg) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(RmsNormRowsBackward);
  const std::int64_t d = shape.d;
  const RowBlocks blocks(shape.rows);
  const Partials partials(blocks, dg == nullptr ? 0 : d);
  for_blocks(blocks, shape.rows * d, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    kernel(end - begin, d, x + begin * d, g, inv + begin, dy + begin * d, at(dx, begin * d), dg == nullptr ? nullptr : partials.row(block));
  });
  partials.add_to(0, d, dg);
}

void silu_head_norm(const HeadNorm& shape, const float* x, float* y, float* inv) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SiluHeadNormRows);
  const std::int64_t d = shape.head_dim;
  const auto eps = static_cast<float>(shape.eps);
  for_ranges(shape.rows, 8, shape.rows * d,
             [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, d, eps, x + begin * d, y + begin * d, inv + begin); });
}

void silu_head_norm_backward(const HeadNorm& shape, const float* x, const float* y, const float* inv, const float* dy, float* dx) {
  if (dx == nullptr) return;
  const auto kernel = HWY_DYNAMIC_DISPATCH(SiluHeadNormRowsBackward);
  const std::int64_t d = shape.head_dim;
  for_ranges(shape.rows, 8, shape.rows * d, [&](std::int64_t begin, std::int64_t end) {
    kernel(end - begin, d, x + begin * d, y + begin * d, inv + begin, dy + begin * d, dx + begin * d);
  });
}

void gated_head_norm(const GatedHeadNorm& shape, const float* o, const float* z, const float* w, float* y, float* inv) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatedHeadNormRows);
  const std::int64_t d = shape.head_dim;
  const auto eps = static_cast<float>(shape.eps);
  for_ranges(shape.rows, 8, shape.rows * d, [&](std::int64_t begin, std::int64_t end) {
    kernel(end - begin, d, eps, o + begin * d, z + begin * d, w, y + begin * d, inv + begin);
  });
}

void gated_head_norm_backward(const GatedHeadNorm& shape, const float* o, const float* z, const float* w, const float* inv, const float* dy,
                              float* d_o, float* dz, float* dw) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatedHeadNormRowsBackward);
  const std::int64_t d = shape.head_dim;
  const RowBlocks blocks(shape.rows);
  const Partials partials(blocks, dw == nullptr ? 0 : d);
  for_blocks(blocks, shape.rows * d, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    kernel(end - begin, d, o + begin * d, z + begin * d, w, inv + begin, dy + begin * d, at(d_o, begin * d), at(dz, begin * d),
           dw == nullptr ? nullptr : partials.row(block));
  });
  partials.add_to(0, d, dw);
}

}  // namespace dormouse::ops::cpu
#endif
