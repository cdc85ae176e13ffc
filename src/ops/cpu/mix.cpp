// engram_read and residual: rows mixed with per-row gates.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/mix.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE float dot(std::int64_t n, const float* a, const float* b) {
  return sum_of(n, [&](auto d, std::int64_t j) HWY_ATTR { return hn::Mul(hn::LoadU(d, a + j), hn::LoadU(d, b + j)); });
}

void EngramReadRows(std::int64_t begin, std::int64_t end, const EngramRead& shape, const float* key, const float* val, const float* u,
                    float* read, float* saved) {
  constexpr float kFloor = 1e-6f;
  const std::int64_t width = shape.d;
  const auto size = static_cast<float>(width);
  const auto eps = static_cast<float>(shape.eps);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* key_r = key + r * width;
    const float* val_r = val + r * width;
    const float* u_r = u + r * width;
    float* read_r = read + r * width;
    const float ik = 1.0f / std::sqrt(dot(width, key_r, key_r) / size + eps);
    const float iu = 1.0f / std::sqrt(dot(width, u_r, u_r) / size + eps);
    const float s = dot(width, key_r, u_r) * ik * iu / std::sqrt(size);
    const float root = std::sqrt(std::max(std::abs(s), kFloor));
    const float gate = 1.0f / (1.0f + std::exp(s > 0 ? -root : s < 0 ? root : 0.0f));
    each(width, [&](auto d, std::int64_t j) HWY_ATTR { hn::StoreU(hn::Mul(hn::Set(d, gate), hn::LoadU(d, val_r + j)), d, read_r + j); });
    float* to = saved + 4 * r;
    to[0] = ik;
    to[1] = iu;
    to[2] = s;
    to[3] = gate;
  }
}

// ds/dkey = u ik iu / sqrt(d) - s key ik^2 / d, and the same with key and u exchanged.
void EngramReadRowsBackward(std::int64_t begin, std::int64_t end, const EngramRead& shape, const float* key, const float* val,
                            const float* u, const float* saved, const float* dread, float* dkey, float* dval, float* du) {
  constexpr float kFloor = 1e-6f;
  const std::int64_t width = shape.d;
  const auto size = static_cast<float>(width);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* key_r = key + r * width;
    const float* u_r = u + r * width;
    const float* dread_r = dread + r * width;
    const float ik = saved[4 * r];
    const float iu = saved[4 * r + 1];
    const float s = saved[4 * r + 2];
    const float gate = saved[4 * r + 3];
    const float slope = std::abs(s) > kFloor ? 0.5f / std::sqrt(std::abs(s)) : 0.0f;
    const float ds = dot(width, dread_r, val + r * width) * gate * (1.0f - gate) * slope;
    const float cross = ds * ik * iu / std::sqrt(size);
    const float key_pull = ds * s * ik * ik / size;
    const float u_pull = ds * s * iu * iu / size;
    each(width, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto kv = hn::LoadU(d, key_r + j);
      const auto uv = hn::LoadU(d, u_r + j);
      const auto c = hn::Set(d, cross);
      if (dval != nullptr) add_store(d, hn::Mul(hn::Set(d, gate), hn::LoadU(d, dread_r + j)), dval + r * width + j);
      if (dkey != nullptr) add_store(d, hn::NegMulAdd(hn::Set(d, key_pull), kv, hn::Mul(c, uv)), dkey + r * width + j);
      if (du != nullptr) add_store(d, hn::NegMulAdd(hn::Set(d, u_pull), uv, hn::Mul(c, kv)), du + r * width + j);
    });
  }
}

void ResidualRows(std::int64_t begin, std::int64_t end, const Residual& shape, const float* u, float rho, const float* gates,
                  const float* a, const float* m, const float* dense, const float* f, float* h) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* gate = gates + r * shape.gate_width;
    const std::int64_t at = r * shape.d;
    const float keep = m == nullptr ? 1.0f : 1.0f - gate[1];
    each(shape.d, [&](auto d, std::int64_t j) HWY_ATTR {
      auto y = hn::Mul(hn::Set(d, keep), hn::LoadU(d, dense + at + j));
      y = hn::MulAdd(hn::Set(d, gate[2]), hn::LoadU(d, f + at + j), y);
      if (a != nullptr) y = hn::MulAdd(hn::Set(d, gate[0]), hn::LoadU(d, a + at + j), y);
      if (m != nullptr) y = hn::MulAdd(hn::Set(d, gate[1]), hn::LoadU(d, m + at + j), y);
      hn::StoreU(hn::MulAdd(hn::Set(d, rho), y, hn::LoadU(d, u + at + j)), d, h + at + j);
    });
  }
}

// terms: A, M, D, F; dterms likewise. drho += the sum over this range of rows.
void ResidualRowsBackward(std::int64_t begin, std::int64_t end, const Residual& shape, float rho, const float* gates,
                          const float* const* terms, const float* dh, float* du, float* drho, float* dgates, float* const* dterms) {
  float sum = 0;
  for (std::int64_t r = begin; r < end; ++r) {
    const float* gate = gates + r * shape.gate_width;
    const std::int64_t at = r * shape.d;
    const float* dh_r = dh + at;
    const float weights[4] = {gate[0], gate[1], terms[1] == nullptr ? 1.0f : 1.0f - gate[1], gate[2]};
    float dots[4] = {0, 0, 0, 0};
    for (int t = 0; t < 4; ++t) {
      if (terms[t] != nullptr && (dgates != nullptr || drho != nullptr)) dots[t] = dot(shape.d, dh_r, terms[t] + at);
      if (dterms[t] == nullptr) continue;
      float* to = dterms[t] + at;
      const float weight = rho * weights[t];
      each(shape.d, [&](auto d, std::int64_t j) HWY_ATTR { add_store(d, hn::Mul(hn::Set(d, weight), hn::LoadU(d, dh_r + j)), to + j); });
    }
    if (du != nullptr) {
      each(shape.d, [&](auto d, std::int64_t j) HWY_ATTR { add_store(d, hn::LoadU(d, dh_r + j), du + at + j); });
    }
    for (int t = 0; t < 4; ++t) sum += weights[t] * dots[t];
    if (dgates == nullptr) continue;
    float* dgate = dgates + r * shape.gate_width;
    dgate[0] += rho * dots[0];
    if (terms[1] != nullptr) dgate[1] += rho * (dots[1] - dots[2]);
    dgate[2] += rho * dots[3];
  }
  if (drho != nullptr) *drho += sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {

HWY_EXPORT(EngramReadRows);
HWY_EXPORT(EngramReadRowsBackward);
HWY_EXPORT(ResidualRows);
HWY_EXPORT(ResidualRowsBackward);

void engram_read(const EngramRead& shape, const float* key, const float* val, const float* u, float* read, float* saved) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(EngramReadRows);
  for_ranges(shape.rows, 8, shape.rows * shape.d,
             [&](std::int64_t begin, std::int64_t end) { kernel(begin, end, shape, key, val, u, read, saved); });
}

void engram_read_backward(const EngramRead& shape, const float* key, const float* val, const float* u, const float* saved,
                          const float* dread, float* dkey, float* dval, float* du) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(EngramReadRowsBackward);
  for_ranges(shape.rows, 8, shape.rows * shape.d,
             [&](std::int64_t begin, std::int64_t end) { kernel(begin, end, shape, key, val, u, saved, dread, dkey, dval, du); });
}

void residual(const Residual& shape, const float* u, const float* rho, const float* gates, const float* a, const float* m, const float* d,
              const float* f, float* h) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ResidualRows);
  for_ranges(shape.rows, 8, shape.rows * shape.d,
             [&](std::int64_t begin, std::int64_t end) { kernel(begin, end, shape, u, *rho, gates, a, m, d, f, h); });
}

void residual_backward(const Residual& shape, const float* rho, const float* gates, const float* a, const float* m, const float* d,
                       const float* f, const float* dh, float* du, float* drho, float* dgates, float* da, float* dm, float* dd, float* df) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ResidualRowsBackward);
  const float* const terms[4] = {a, m, d, f};
  float* const dterms[4] = {a == nullptr ? nullptr : da, m == nullptr ? nullptr : dm, dd, df};
  const RowBlocks blocks(shape.rows);
  const Partials partials(blocks, 1);
  for_blocks(blocks, shape.rows * shape.d, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    kernel(begin, end, shape, *rho, gates, terms, dh, du, drho == nullptr ? nullptr : partials.row(block), dgates, dterms);
  });
  partials.add_to(0, 1, drho);
}

}  // namespace dormouse::ops::cpu
#endif
