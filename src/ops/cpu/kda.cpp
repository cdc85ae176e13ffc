// Forward and step form of the gated delta recurrence. The plan of a chunk: kda-inl.h.
#include "ops/cpu/kda.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kda.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/cpu/kda-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

namespace {

// to[hd,hd] = s[ld,ld]. Not read before the backward, long after: past the caches where the alignment allows.
HWY_INLINE void store_chunk_state(std::size_t hd, std::size_t ld, const float* s, float* to) {
  const D d;
  if (hd != ld || reinterpret_cast<std::uintptr_t>(to) % (kLanes * sizeof(float)) != 0) {
    store_rows<false>(hd, hd, s, ld, to, hd);
    return;
  }
  for (std::size_t i = 0; i < hd * hd; i += kLanes) hn::Stream(hn::Load(d, s + i), d, to + i);
}

}  // namespace

// All chunks of one unit, first to last. Returns the number of pairwise chunks.
std::size_t forward_unit(const KdaUnit& u, const KdaForward& io, float* scratch) {
  const D d;
  const std::size_t hd = u.hd, ld = u.ld, r = kKdaRows * ld, pairs = kKdaRows * kKdaRows;
  KdaCarver carve(scratch);
  float *s = carve.take(ld * ld), *q = carve.take(r), *k = carve.take(r), *v = carve.take(r), *g = carve.take(r);
  float *beta = carve.take(kKdaRows), *reads = carve.take(2 * r), *fresh = carve.take(r);
  const Decays e{carve.take(r), carve.take(r), carve.take(r), carve.take(r), carve.take(ld)};
  Factors f{};
  f.hat = carve.take(2 * r);
  f.k_end = carve.take(r);
  f.first = carve.take(2 * r);
  f.k_first = carve.take(r);
  f.k_first_t = carve.take(r);
  f.p = carve.take(2 * pairs);
  f.l = f.p + pairs;
  f.lower = carve.take(pairs);
  f.minus_lower = carve.take(pairs);

  std::size_t pairwise = 0;
  load_state(hd, ld, io.state0 == nullptr ? nullptr : io.state0 + u.state, s);
  for (std::size_t chunk = 0; chunk < u.chunks; ++chunk) {
    const std::size_t n = u.rows_of(chunk), x = u.x + chunk * kKdaRows * u.row;
    load_rows(n, hd, ld, io.q + x, u.row, u.scale, q);
    load_rows(n, hd, ld, io.k + x, u.row, 1, k);
    load_rows(n, hd, ld, io.v + x, u.row, 1, v);
    load_rows(n, hd, ld, io.g + x, u.row, 1, g);
    load_beta(n, io.beta + u.beta + chunk * kKdaRows * u.beta_row, u.beta_row, beta);
    if (io.chunk_states != nullptr) store_chunk_state(hd, ld, s, io.chunk_states + u.chunk_state + chunk * hd * hd);
    if (!chunk_factors(ld, q, k, g, beta, e, f)) ++pairwise;

    gemm(2 * kKdaRows, ld, ld, f.hat, ld, 1, s, ld, reads, ld);  // q^ S, k^ S
    for (std::size_t i = 0; i < kKdaRows; ++i) {
      const V b = hn::Set(d, beta[i]);
      for (std::size_t c = i * ld; c < (i + 1) * ld; c += kLanes)
        hn::Store(hn::Mul(b, hn::Sub(hn::Load(d, v + c), hn::Load(d, reads + r + c))), d, fresh + c);
    }
    solve<false>(ld, f.lower, f.minus_lower, fresh);
    gemm<Init::add>(8, ld, 8, f.p, kKdaRows, 1, fresh, ld, reads, ld);
    gemm<Init::add>(8, ld, kKdaRows, f.p + 8 * kKdaRows, kKdaRows, 1, fresh, ld, reads + 8 * ld, ld);
    store_rows<false>(n, hd, reads, ld, io.o + x, u.row);
    if (chunk + 1 < u.chunks || io.state != nullptr) gemm<Init::scaled>(ld, ld, kKdaRows, f.k_end, 1, ld, fresh, ld, s, ld, e.total);
  }
  if (io.state != nullptr) store_rows<false>(hd, hd, s, ld, io.state + u.state, hd);
  hwy::FlushStream();
  return pairwise;
}

namespace {

// kVectors vectors of value columns of one step. decay [hd] = exp(g); q, k scaled and plain.
template <int kVectors, class Tag>
HWY_INLINE void step_columns(Tag tag, std::size_t hd, const float* q, const float* k, const float* decay, float qk, const float* v,
                             float beta, float* state, float* o) {
  using Vec = hn::Vec<Tag>;
  const std::size_t lanes = hn::Lanes(tag);
  Vec read_k[kVectors], read_q[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) read_k[i] = read_q[i] = hn::Zero(tag);
  for (std::size_t d = 0; d < hd; ++d) {
    const Vec fade = hn::Set(tag, decay[d]), key = hn::Set(tag, k[d]), query = hn::Set(tag, q[d]);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i) {
      const Vec s = hn::Mul(fade, hn::LoadU(tag, state + d * hd + i * lanes));
      read_k[i] = hn::MulAdd(key, s, read_k[i]);
      read_q[i] = hn::MulAdd(query, s, read_q[i]);
    }
  }
  Vec u[kVectors];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kVectors; ++i) {
    u[i] = hn::Mul(hn::Set(tag, beta), hn::Sub(hn::LoadU(tag, v + i * lanes), read_k[i]));
    hn::StoreU(hn::MulAdd(hn::Set(tag, qk), u[i], read_q[i]), tag, o + i * lanes);
  }
  for (std::size_t d = 0; d < hd; ++d) {
    const Vec fade = hn::Set(tag, decay[d]), key = hn::Set(tag, k[d]);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kVectors; ++i) {
      float* to = state + d * hd + i * lanes;
      hn::StoreU(hn::MulAdd(key, u[i], hn::Mul(fade, hn::LoadU(tag, to))), tag, to);
    }
  }
}

}  // namespace

// The positions of one unit, one by one: o = q (S- + k u^T) = q S- + (q.k) u with S- the decayed state.
std::size_t step_unit(const KdaUnit& u, const KdaForward& io, float* scratch) {
  const D d;
  const std::size_t hd = u.hd, ld = u.ld;
  KdaCarver carve(scratch);
  float *q = carve.take(ld), *k = carve.take(ld), *decay = carve.take(ld);
  float* state = io.state + u.state;
  for (std::size_t t = 0; t < u.time; ++t) {
    const std::size_t x = u.x + t * u.row;
    V sum = hn::Zero(d);
    for (std::size_t c = 0; c < ld; ++c) {
      q[c] = c < hd ? u.scale * io.q[x + c] : 0;
      k[c] = c < hd ? io.k[x + c] : 0;
      decay[c] = c < hd ? io.g[x + c] : 0;
    }
    for (std::size_t c = 0; c < ld; c += kLanes) {
      sum = hn::MulAdd(hn::Load(d, q + c), hn::Load(d, k + c), sum);
      hn::Store(exp_nats(hn::Load(d, decay + c)), d, decay + c);
    }
    const float qk = hn::GetLane(hn::SumOfLanes(d, sum)), beta = io.beta[u.beta + t * u.beta_row];
    const float* v = io.v + x;
    float* o = io.o + x;
    std::size_t c = 0;
    const auto columns = [&](auto tag, auto vectors) HWY_ATTR {
      const std::size_t step = hn::Lanes(tag) * vectors();
      for (; c + step <= hd; c += step) step_columns<vectors()>(tag, hd, q, k, decay, qk, v + c, beta, state + c, o + c);
    };
    columns(d, std::integral_constant<int, 4>());
    columns(d, std::integral_constant<int, 1>());
    if constexpr (kLanes > 4) columns(hn::CappedTag<float, 4>(), std::integral_constant<int, 1>());
    if constexpr (kLanes > 1) columns(hn::CappedTag<float, 1>(), std::integral_constant<int, 1>());
  }
  return 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {
namespace {

HWY_EXPORT(forward_unit);
HWY_EXPORT(step_unit);

std::size_t padded(const Kda& p) { return static_cast<std::size_t>((p.head_dim + 15) / 16 * 16); }

}  // namespace

void kda(const Kda& p, const float* q, const float* k, const float* v, const float* g, const float* beta, const float* state0, float* o,
         float* state, float* chunk_states) {
  const std::size_t ld = padded(p), floats = ld * ld + 20 * kKdaRows * ld + 8 * kKdaRows * kKdaRows + 1024;
  const KdaForward io{q, k, v, g, beta, state0, o, state, chunk_states};
  each_kda_unit(p, io, HWY_DYNAMIC_DISPATCH(forward_unit), floats);
}

void kda_step(const Kda& p, const float* q, const float* k, const float* v, const float* g, const float* beta, float* state, float* o) {
  const KdaForward io{q, k, v, g, beta, state, o, state, nullptr};
  const auto kernel = HWY_DYNAMIC_DISPATCH(step_unit);
  const std::size_t floats = 4 * padded(p) + 256;
  const auto units = static_cast<std::int64_t>(kda_units(p));
  split(units, units * p.head_dim * p.head_dim * p.time, [&](std::int64_t begin, std::int64_t end) {
    float* scratch = kda_scratch(floats);
    if (scratch == nullptr) kda_out_of_memory(floats);
    for (std::int64_t i = begin; i < end; ++i) kernel(KdaUnit(p, static_cast<std::size_t>(i)), io, scratch);
  });
}

}  // namespace dormouse::ops::cpu
#endif
