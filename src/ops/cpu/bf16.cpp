// f32 -> bf16, nearest even. (Highway 1.0.3's own demotion truncates.)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/bf16.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/half.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void RoundToBf16(std::int64_t n, const float* HWY_RESTRICT from, std::uint16_t* HWY_RESTRICT to) {
  const hn::ScalableTag<std::int32_t> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint16_t, decltype(d)> dh;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    const auto bits = hn::BitCast(du, hn::LoadU(hn::RebindToFloat<decltype(d)>(), from + i));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto nearest = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffU)), odd));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40U));
    const auto size = hn::BitCast(d, hn::And(bits, hn::Set(du, 0x7fffffffU)));
    const auto nan = hn::Gt(size, hn::Set(d, 0x7f800000));
    const auto half = hn::IfThenElse(nan, hn::BitCast(d, quiet), hn::BitCast(d, nearest));
    hn::StoreU(hn::DemoteTo(dh, half), dh, to + i);
  }
  for (; i < n; ++i) to[i] = base::bf16_from_f32(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {

HWY_EXPORT(RoundToBf16);

void round_to_bf16(std::int64_t rows, std::int64_t cols, std::int64_t ld, const float* from, std::uint16_t* to) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(RoundToBf16);
  if (ld == cols) {
    for_ranges(rows * cols, 1024, rows * cols,
               [&](std::int64_t begin, std::int64_t end) { kernel(end - begin, from + begin, to + begin); });
    return;
  }
  for_ranges(rows, 8, rows * cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) kernel(cols, from + r * ld, to + r * cols);
  });
}

}  // namespace dormouse::ops::cpu
#endif
