// log_softmax and cross_entropy. Logits exist only in tiles of kTileRows rows, made by the own GEMM on each thread.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/loss.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "ops/cpu/gemm_portable.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

float LogSumExp(std::int64_t n, const float* x) {
  const float top = max_of(n, x);
  const float sum = sum_of(n, [&](auto d, std::int64_t j) HWY_ATTR { return exp(d, hn::Sub(hn::LoadU(d, x + j), hn::Set(d, top))); });
  return top + std::log(sum);
}

void LogSoftmaxRows(std::int64_t rows, std::int64_t width, const float* x, float* y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* xr = x + r * width;
    const float lse = LogSumExp(width, xr);
    each(width, [&](auto d, std::int64_t j) HWY_ATTR { hn::StoreU(hn::Sub(hn::LoadU(d, xr + j), hn::Set(d, lse)), d, y + r * width + j); });
  }
}

// logits [rows,classes] -> (softmax - onehot) * dnats, in place.
void LogitGradients(std::int64_t rows, std::int64_t classes, const std::uint8_t* target, const float* lse, const float* dnats,
                    float* logits) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = logits + r * classes;
    each(classes, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto p = exp(d, hn::Sub(hn::LoadU(d, row + j), hn::Set(d, lse[r])));
      hn::StoreU(hn::Mul(p, hn::Set(d, dnats[r])), d, row + j);
    });
    row[target[r]] -= dnats[r];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {

HWY_EXPORT(LogSumExp);
HWY_EXPORT(LogSoftmaxRows);
HWY_EXPORT(LogitGradients);

namespace {

constexpr std::int64_t kTileRows = 96;

// V^T [k,classes] packed for x V^T.
const float* packed_classes(const CrossEntropy& shape, const float* v) {
  float* packed = scratch(Slot::pack_b, packed_size(shape.k, shape.classes));
  pack_columns({v, shape.k, true}, shape.k, shape.classes, 0, shape.classes, packed);
  return packed;
}

void tile_logits(const CrossEntropy& shape, std::int64_t rows, const float* x, const float* packed, float* logits) {
  gemm_packed({rows, shape.classes, shape.k, shape.classes, 0, shape.classes, false}, {x, shape.k, false}, packed, logits);
}

}  // namespace

void log_softmax(std::int64_t rows, std::int64_t d, const float* x, float* y) {
  if (d == 0) return;
  const auto kernel = HWY_DYNAMIC_DISPATCH(LogSoftmaxRows);
  for_ranges(rows, 8, rows * d, [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, d, x + begin * d, y + begin * d); });
}

void cross_entropy(const CrossEntropy& shape, const float* x, const float* v, const std::uint8_t* target, float* nats, float* lse) {
  const auto log_sum_exp = HWY_DYNAMIC_DISPATCH(LogSumExp);
  const float* packed = packed_classes(shape, v);
  for_ranges(shape.rows, 12, shape.rows * shape.classes, [&](std::int64_t begin, std::int64_t end) {
    float* logits = scratch(Slot::tile, kTileRows * shape.classes);
    for (std::int64_t first = begin; first < end; first += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, end - first);
      tile_logits(shape, rows, x + first * shape.k, packed, logits);
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* row = logits + r * shape.classes;
        lse[first + r] = log_sum_exp(shape.classes, row);
        nats[first + r] = lse[first + r] - row[target[first + r]];
      }
    }
  });
}

void cross_entropy_backward(const CrossEntropy& shape, const float* x, const float* v, const std::uint8_t* target, const float* lse,
                            const float* dnats, float* dx, float* dv) {
  if (shape.rows == 0 || (dx == nullptr && dv == nullptr)) return;
  const auto gradients = HWY_DYNAMIC_DISPATCH(LogitGradients);
  const std::int64_t k = shape.k;
  const std::int64_t classes = shape.classes;
  const std::int64_t forward_size = round_up(packed_size(k, classes), 16);
  float* packed = scratch(Slot::pack_b, forward_size + packed_size(classes, k));
  float* packed_back = packed + forward_size;
  pack_columns({v, k, true}, k, classes, 0, classes, packed);
  if (dx != nullptr) pack_columns({v, k, false}, classes, k, 0, k, packed_back);
  const RowBlocks blocks(shape.rows, 16, kTileRows);
  const Partials partials(blocks, dv == nullptr ? 0 : classes * k);
  for_blocks(blocks, shape.rows * classes, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    float* logits = scratch(Slot::tile, kTileRows * classes);
    float* packed_x = scratch(Slot::tile_pack, packed_size(kTileRows, k));
    for (std::int64_t first = begin; first < end; first += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, end - first);
      const float* x_tile = x + first * k;
      tile_logits(shape, rows, x_tile, packed, logits);
      gradients(rows, classes, target + first, lse + first, dnats + first, logits);
      if (dx != nullptr) gemm_packed({rows, k, classes, k, 0, k, true}, {logits, classes, false}, packed_back, dx + first * k);
      if (dv != nullptr) {
        pack_columns({x_tile, k, false}, rows, k, 0, k, packed_x);
        gemm_packed({classes, k, rows, k, 0, k, true}, {logits, classes, true}, packed_x, partials.row(block));
      }
    }
  });
  if (dv != nullptr) partials.add_to(0, classes * k, dv);
}

}  // namespace dormouse::ops::cpu
#endif
