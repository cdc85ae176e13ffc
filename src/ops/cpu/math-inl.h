// Vector building blocks of the kernels. Included once per Highway target.
#if defined(DORMOUSE_OPS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DORMOUSE_OPS_CPU_MATH_INL_H_
#undef DORMOUSE_OPS_CPU_MATH_INL_H_
#else
#define DORMOUSE_OPS_CPU_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Full = hn::ScalableTag<float>;
using One = hn::CappedTag<float, 1>;  // tails: one element at a time, the same operations, no access past the end

// exp(x), error below 2 ulp. Above 88.37 it stays at the largest power reached (2.4e38), below -87.33 it is 0; NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V high = hn::Set(d, 88.37626f);
  const V low = hn::Set(d, -87.33654f);
  const V t = hn::IfThenElse(hn::Gt(x, high), high, x);
  const V n = hn::Round(hn::Mul(t, hn::Set(d, 1.44269504088896341f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), t);  // ln 2 in two parts: n * high is exact
  r = hn::NegMulAdd(n, hn::Set(d, 1.428606820309417e-6f), r);
  // e^r = 1 + r + r^2 p(r) on |r| <= ln2/2
  V p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, low), hn::Mul(p, hn::BitCast(d, power)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

// d silu(x) / dx = s (1 + x (1 - s)), s = sigmoid(x)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_slope(D d, V x, V s) {
  const V one = hn::Set(d, 1.0f);
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
}

// f(d, i) for i = 0, step, ... over n elements: whole vectors, then single elements.
template <class F>
HWY_INLINE void each(std::int64_t n, const F& f) {
  const Full d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) f(d, i);
  for (; i < n; ++i) f(One(), i);
}

// sum of f(d, i) over n elements, four accumulators.
template <class F>
HWY_INLINE float sum_of(std::int64_t n, const F& f) {
  const Full d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d);
  auto s1 = s0;
  auto s2 = s0;
  auto s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    s0 = hn::Add(s0, f(d, i));
    s1 = hn::Add(s1, f(d, i + step));
    s2 = hn::Add(s2, f(d, i + 2 * step));
    s3 = hn::Add(s3, f(d, i + 3 * step));
  }
  for (; i + step <= n; i += step) s0 = hn::Add(s0, f(d, i));
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += hn::GetLane(f(One(), i));
  return sum;
}

HWY_INLINE float max_of(std::int64_t n, const float* x) {
  const Full d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  float best = n > 0 ? x[0] : 0.0f;
  std::int64_t i = 0;
  if (n >= step) {
    auto most = hn::LoadU(d, x);
    for (i = step; i + step <= n; i += step) most = hn::Max(most, hn::LoadU(d, x + i));
    best = hn::GetLane(hn::MaxOfLanes(d, most));
  }
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// y[i] += v
template <class D, class V = hn::Vec<D>>
HWY_INLINE void add_store(D d, V v, float* y) {
  hn::StoreU(hn::Add(hn::LoadU(d, y), v), d, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#endif
