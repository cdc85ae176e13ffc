// hidden: the [rows,f] layer exists only in tiles that stay in the L2 cache; the backward makes its tiles again. Threads take
// ranges of rows and sum dV and dU apart; the sums are joined in the order of the ranges.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/hidden.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <exception>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

// p -> h = silu(p)
void SiluTile(std::int64_t n, float* p) {
  each(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, p + i);
    hn::StoreU(hn::Mul(v, sigmoid(d, v)), d, p + i);
  });
}

// p -> h = silu(p), dh -> dp = dh silu'(p)
void SiluTileBackward(std::int64_t n, float* HWY_RESTRICT p, float* HWY_RESTRICT dh) {
  each(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, p + i);
    const auto s = sigmoid(d, v);
    hn::StoreU(hn::Mul(v, s), d, p + i);
    hn::StoreU(hn::Mul(hn::LoadU(d, dh + i), silu_slope(d, v, s)), d, dh + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {

HWY_EXPORT(SiluTile);
HWY_EXPORT(SiluTileBackward);

namespace {

using GemmFunction = void (*)(const Gemm&, const float* a, const float* b, float* c);

// A tile is 512 KiB; the backward holds two, beside their strips of the factors: docs/decisions/0003-training-step-speed.md
constexpr std::int64_t kTileRows = 256;
constexpr std::int64_t kTileColumns = 512;

std::int64_t tile_rows(std::int64_t rows) { return std::clamp<std::int64_t>(round_up(ceil_div(rows, team_size()), 32), 32, kTileRows); }

// How many workers share the tiles of `rows`.
std::int64_t workers_for(std::int64_t rows) { return std::min<std::int64_t>(team_size(), ceil_div(rows, tile_rows(rows))); }

// body(worker, begin, end) for every tile of rows, the workers in parallel, a worker's tiles in order. Workers are counted from 0 whichever
// thread each one is. A lone tile runs outside of any region, so that its products have the whole team.
template <class Body>
void for_row_tiles(std::int64_t rows, const Body& body) {
  const std::int64_t size = tile_rows(rows);
  const std::int64_t tiles = ceil_div(rows, size);
  const std::int64_t workers = workers_for(rows);
  const auto run = [&](std::int64_t worker) {
    for (std::int64_t i = tiles * worker / workers; i < tiles * (worker + 1) / workers; ++i)
      body(worker, i * size, std::min(rows, (i + 1) * size));
  };
  if (workers <= 1) {
    if (tiles > 0) run(0);
    return;
  }
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(workers));
#pragma omp parallel
  for (std::int64_t worker = omp_get_thread_num(); worker < workers; worker += omp_get_num_threads()) {
    try {
      run(worker);
    } catch (...) {
      errors[static_cast<std::size_t>(worker)] = std::current_exception();
    }
  }
  for (const auto& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

// body(first, count) over strips of the f columns
template <class Body>
void for_strips(std::int64_t f, const Body& body) {
  for (std::int64_t first = 0; first < f; first += kTileColumns) body(first, std::min(kTileColumns, f - first));
}

// c[m,n] = a[m,k] b[n,k]^T
Gemm expansion(std::int64_t m, std::int64_t n, std::int64_t k, Compute compute) {
  return {.m = m, .n = n, .k = k, .lda = k, .ldb = k, .ldc = n, .transpose_b = true, .compute = compute};
}

// c[m,n] (+)= a[m,k] b[k,n]
Gemm contraction(std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate, Compute compute) {
  return {.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n, .accumulate = accumulate, .compute = compute};
}

// c[m,n] += a[k,m]^T b[k,n]
Gemm outer(std::int64_t m, std::int64_t n, std::int64_t k, Compute compute) {
  return {.m = m, .n = n, .k = k, .lda = m, .ldb = n, .ldc = n, .transpose_a = true, .accumulate = true, .compute = compute};
}

void forward(GemmFunction gemm, const Hidden& s, const float* x, const float* v, const float* u, float* y) {
  const auto silu_tile = HWY_DYNAMIC_DISPATCH(SiluTile);
  if (s.f == 0) std::fill_n(y, s.rows * s.r, 0.0f);
  for_row_tiles(s.rows, [&](std::int64_t /*worker*/, std::int64_t begin, std::int64_t end) {
    const std::int64_t m = end - begin;
    for_strips(s.f, [&](std::int64_t first, std::int64_t n) {
      float* p = scratch(Slot::hidden, kTileRows * kTileColumns);
      gemm(expansion(m, n, s.k, s.compute), x + begin * s.k, v + first * s.k, p);
      silu_tile(m * n, p);
      gemm(contraction(m, s.r, n, first > 0, s.compute), p, u + first * s.r, y + begin * s.r);
    });
  });
}

void backward(GemmFunction gemm, const Hidden& s, const float* x, const float* v, const float* u, const float* dy, float* dx, float* dv,
              float* du) {
  if (s.rows == 0 || (dx == nullptr && dv == nullptr && du == nullptr)) return;
  const auto silu_tile_backward = HWY_DYNAMIC_DISPATCH(SiluTileBackward);
  const std::int64_t v_size = dv == nullptr ? 0 : s.f * s.k;
  const std::int64_t u_size = du == nullptr ? 0 : s.f * s.r;
  // Worker 0 adds to dv and du themselves.
  const std::int64_t others = workers_for(s.rows) - 1;
  const std::int64_t stride = round_up(v_size + u_size, 16);
  float* sums = scratch(Slot::partials, others * stride);
  for_ranges(others * stride, 1024, others * stride,
             [&](std::int64_t begin, std::int64_t end) { std::fill(sums + begin, sums + end, 0.0f); });
  for_row_tiles(s.rows, [&](std::int64_t worker, std::int64_t begin, std::int64_t end) {
    const std::int64_t m = end - begin;
    float* own = sums + (worker - 1) * stride;
    float* to_v = worker == 0 ? dv : own;
    float* to_u = worker == 0 ? du : own + v_size;
    for_strips(s.f, [&](std::int64_t first, std::int64_t n) {
      float* h = scratch(Slot::hidden, 2 * kTileRows * kTileColumns);
      float* dp = h + m * n;
      gemm(expansion(m, n, s.k, s.compute), x + begin * s.k, v + first * s.k, h);
      gemm(expansion(m, n, s.r, s.compute), dy + begin * s.r, u + first * s.r, dp);
      silu_tile_backward(m * n, h, dp);
      if (du != nullptr) gemm(outer(n, s.r, m, s.compute), h, dy + begin * s.r, to_u + first * s.r);
      if (dv != nullptr) gemm(outer(n, s.k, m, s.compute), dp, x + begin * s.k, to_v + first * s.k);
      if (dx != nullptr) gemm(contraction(m, s.k, n, true, s.compute), dp, v + first * s.k, dx + begin * s.k);
    });
  });
  for (std::int64_t i = 0; i < others; ++i) {
    if (dv != nullptr) axpy(v_size, 1.0f, sums + i * stride, dv);
    if (du != nullptr) axpy(u_size, 1.0f, sums + i * stride + v_size, du);
  }
}

}  // namespace

void hidden_portable(const Hidden& shape, const float* x, const float* v, const float* u, float* y) {
  forward(gemm_portable, shape, x, v, u, y);
}

void hidden_portable_backward(const Hidden& shape, const float* x, const float* v, const float* u, const float* dy, float* dx, float* dv,
                              float* du) {
  backward(gemm_portable, shape, x, v, u, dy, dx, dv, du);
}

#ifdef DORMOUSE_ONEDNN
void hidden_onednn(const Hidden& shape, const float* x, const float* v, const float* u, float* y) {
  forward(gemm_onednn, shape, x, v, u, y);
}

void hidden_onednn_backward(const Hidden& shape, const float* x, const float* v, const float* u, const float* dy, float* dx, float* dv,
                            float* du) {
  backward(gemm_onednn, shape, x, v, u, dy, dx, dv, du);
}
#endif

}  // namespace dormouse::ops::cpu
#endif
