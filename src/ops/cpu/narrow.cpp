// Products with narrow matrices (ops/narrow.h). A weight is loaded once for several rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/narrow.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "ops/cpu/avx2.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/narrow_kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu_level.h"
#include "ops/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using V = hn::Vec<Full>;
using Ints = hn::ScalableTag<std::int32_t>;

// A strip is kVectors vectors wide.
constexpr std::int64_t kStrip = NarrowMatrix::kStrip;
constexpr int kLanes = static_cast<int>(HWY_LANES(float));
constexpr int kVectors = static_cast<int>(kStrip) / kLanes;

// Of all kernels of pass_all() below. A pass has as many sums under way as there are registers for: where its strips have more columns, it
// goes through them once for every share of their vectors.
struct Passes {
#if HWY_TARGET <= HWY_AVX3
  static constexpr int kStripsAlone = 4, kStripsOfSome = 2, kRowsTogether = 8, kMostSums = 16;
#elif HWY_TARGET <= HWY_AVX2
  static constexpr int kStripsAlone = 2, kStripsOfSome = 1, kRowsTogether = 4, kMostSums = 8;
#else
  static constexpr int kStripsAlone = 1, kStripsOfSome = 1, kRowsTogether = 1, kMostSums = 8;
#endif
  static constexpr int strips_of(int rows) { return rows == 1 ? kStripsAlone : rows < kRowsTogether ? kStripsOfSome : 1; }
  // Vectors of a strip at once.
  static constexpr int vectors_of(int rows, int strips) { return std::min(kVectors, std::max(1, kMostSums / (rows * strips))); }
};

// to [kCount lanes], or its first `columns`, none when negative.
template <int kCount>
HWY_INLINE void store_row(const V* sums, float* to, std::int64_t columns) {
  const Full d;
  constexpr std::int64_t kWidth = kCount * kLanes;
  HWY_ALIGN float tile[kWidth];
  float* place = columns >= kWidth ? to : tile;
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) hn::StoreU(sums[v], d, place + v * kLanes);
  if (place == tile) std::copy_n(tile, std::max<std::int64_t>(columns, 0), to);
}

// from [kLanes], or only its first `columns` (none when negative) and zeros.
HWY_INLINE V load_row(const float* from, std::int64_t columns) {
  const Full d;
  if (columns >= kLanes) return hn::LoadU(d, from);
  HWY_ALIGN float some[kLanes] = {};
  std::copy_n(from, std::max<std::int64_t>(columns, 0), some);
  return hn::Load(d, some);
}

// sums += factor w over steps of k, in kCount vectors of columns of kStrips strips and every row of kRows: w is the first of them in the
// first strip's row, those of the next strip `next` bytes on; factor(r, i) is that of row r at step i.
template <int kRows, int kStrips, int kCount, class Factor, class Add, class Sum>
HWY_INLINE void add_steps(std::int64_t steps, const std::byte* w, std::size_t next, const Factor& factor, const Add& add, Sum* sums) {
  constexpr std::size_t kBytes = sizeof(float) * static_cast<std::size_t>(kLanes);
  for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) {
      const std::byte* at = w + static_cast<std::size_t>(s) * next;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Sum x = factor(r, i);
#pragma GCC unroll 8
        for (int v = 0; v < kCount; ++v) {
          Sum& sum = sums[(r * kStrips + s) * kCount + v];
          sum = add(x, at + static_cast<std::size_t>(v) * kBytes, sum);
        }
      }
    }
    w += kBytes * kVectors;
  }
}

// What the passes of the three kernels share: strips [strip, strip + kStrips) of rows [row, row + kRows), from column `first` of a strip
// on kCount vectors at once.
template <class Kernel>
struct InShares : Passes {
  template <int kRows, int kStrips>
  HWY_NOINLINE void pass(const StripRange& range, std::int64_t strip, std::int64_t row) const {
    constexpr int kCount = vectors_of(kRows, kStrips);
    V y[kRows * kStrips * kCount];
    for (std::int64_t first = 0; first < kStrip; first += kCount * kLanes) {
      static_cast<const Kernel*>(this)->template sum<kRows, kStrips, kCount>(*range.w, strip, first, row, y);
#pragma GCC unroll 16
      for (int i = 0; i < kRows * kStrips; ++i) {
        const std::int64_t j = (strip + i % kStrips) * kStrip + first;
        store_row<kCount>(y + i * kCount, range.y + (row + i / kStrips) * range.w->n() + j, range.w->n() - j);
      }
    }
  }
};

struct Floats : InShares<Floats> {
  const float* x;
  explicit Floats(const float* rows) : x(rows) {}

  template <int kRows, int kStrips, int kCount>
  HWY_INLINE void sum(const NarrowMatrix& w, std::int64_t strip, std::int64_t first, std::int64_t row, V* y) const {
    const Full d;
    const std::int64_t k = w.k();
    V sums[kRows * kStrips * kCount];
#pragma GCC unroll 32
    for (V& one : sums) one = hn::Zero(d);
    const float* xr = x + row * k;
    add_steps<kRows, kStrips, kCount>(
        k, w.strip(strip) + first * 4, w.strip_bytes(), [&](int r, std::int64_t i) HWY_ATTR { return hn::Set(d, xr[r * k + i]); },
        [&](V factor, const std::byte* at, V one)
            HWY_ATTR { return hn::MulAdd(factor, hn::LoadU(d, reinterpret_cast<const float*>(at)), one); },
        sums);
#pragma GCC unroll 32
    for (int i = 0; i < kRows * kStrips * kCount; ++i) y[i] = sums[i];
  }
};

// sums + a[0] b[0] + a[1] b[1] in every lane, of two 16-bit whole numbers each; exact below 2^31.
HWY_INLINE hn::Vec<Ints> add_pair_products(hn::Vec<Ints> a, hn::Vec<Ints> b, hn::Vec<Ints> sums) {
#if HWY_TARGET == HWY_AVX2
  cpu::add_pair_products(sums.raw, a.raw, b.raw);
  return sums;
#elif HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const Ints di;
  const hn::Repartition<std::int16_t, Ints> half;
  auto unused = hn::Zero(di);  // on x86 the sum of each lane's pair goes to its lane of the first
  return hn::ReorderWidenMulAccumulate(di, hn::BitCast(half, a), hn::BitCast(half, b), sums, unused);
#else
  const auto low = [&](hn::Vec<Ints> x) HWY_ATTR { return hn::ShiftRight<16>(hn::ShiftLeft<16>(x)); };
  const auto high = [&](hn::Vec<Ints> x) HWY_ATTR { return hn::ShiftRight<16>(x); };
  return hn::Add(sums, hn::Add(hn::Mul(low(a), low(b)), hn::Mul(high(a), high(b))));
#endif
}

// Two neighbours, in every lane.
HWY_INLINE hn::Vec<Ints> pair_at(const std::int16_t* x) {
  std::int32_t pair;
  std::copy_n(reinterpret_cast<const char*>(x), 4, reinterpret_cast<char*>(&pair));
  return hn::Set(Ints(), pair);
}

// bf16.
struct Pairs : InShares<Pairs> {
  const Wholes& x;
  explicit Pairs(const Wholes& rows) : x(rows) {}

  template <int kRows, int kStrips, int kCount>
  HWY_INLINE void sum(const NarrowMatrix& w, std::int64_t strip, std::int64_t first, std::int64_t row, V* y) const {
    const Full d;
    const Ints di;
    const I16Blocks blocks(w.k());
    const std::byte* panel = w.strip(strip) + first * 4;
    const float* scales = w.scales().data() + strip * kStrip + first;
    const std::int16_t* factors = x.whole + row * x.padded;
    constexpr int kSums = kRows * kStrips * kCount;
    for (int i = 0; i < kSums; ++i) y[i] = hn::Zero(d);
    for (std::int64_t block = 0; block < blocks.count; ++block) {
      hn::Vec<Ints> sums[kSums];
#pragma GCC unroll 32
      for (auto& one : sums) one = hn::Zero(di);
      const std::int64_t steps = ceil_div(blocks.depth(block), 2);
      add_steps<kRows, kStrips, kCount>(
          steps, panel, w.strip_bytes(), [&](int r, std::int64_t i) HWY_ATTR { return pair_at(factors + r * x.padded + 2 * i); },
          [&](hn::Vec<Ints> pair, const std::byte* at, hn::Vec<Ints> one)
              HWY_ATTR { return add_pair_products(pair, hn::LoadU(di, reinterpret_cast<const std::int32_t*>(at)), one); },
          sums);
#pragma GCC unroll 32
      for (int i = 0; i < kSums; ++i) {
        const std::int64_t r = row + i / (kStrips * kCount), s = i / kCount % kStrips;
        const V scale = hn::Mul(hn::Set(d, x.scale[r * blocks.count + block]), hn::LoadU(d, scales + s * kStrip + i % kCount * kLanes));
        y[i] = hn::MulAdd(hn::ConvertTo(d, sums[i]), scale, y[i]);
      }
      panel += steps * 4 * kStrip;
      scales += w.strips() * kStrip;
      factors += blocks.size;
    }
  }
};

// Sums of whole numbers in doubles, exact below 2^53, rounded to float once.
struct Exact {
#if HWY_TARGET == HWY_SCALAR || !HWY_HAVE_FLOAT64
  double sum[kLanes];
  void clear() { std::fill_n(sum, kLanes, 0.0); }
  void add(hn::Vec<Ints> x) {
    HWY_ALIGN std::int32_t one[kLanes];
    hn::Store(x, Ints(), one);
    for (int i = 0; i < kLanes; ++i) sum[i] += one[i];
  }
  V rounded() const {
    HWY_ALIGN float one[kLanes];
    for (int i = 0; i < kLanes; ++i) one[i] = static_cast<float>(sum[i]);
    return hn::Load(Full(), one);
  }
#else
  using Doubles = hn::Repartition<double, Ints>;
  hn::Vec<Doubles> lower, upper;
  HWY_INLINE void clear() { lower = upper = hn::Zero(Doubles()); }
  HWY_INLINE void add(hn::Vec<Ints> x) {
    const hn::Half<Ints> half;
    lower = hn::Add(lower, hn::PromoteTo(Doubles(), hn::LowerHalf(half, x)));
    upper = hn::Add(upper, hn::PromoteTo(Doubles(), hn::UpperHalf(half, x)));
  }
  HWY_INLINE V rounded() const {
    const hn::Half<Full> half;
    return hn::Combine(Full(), hn::DemoteTo(half, upper), hn::DemoteTo(half, lower));
  }
#endif
};

// int8, ternary, without VPDPBUSD: codes become 16-bit whole numbers as they are stored, once for all rows of a pass. What storing added
// to them, o, comes off first: a sum begins with -o sum(x), so that on its way every x counts with its code or with -o (kCodeBlock).
template <bool kTernary>
struct Codes : InShares<Codes<kTernary>> {
  const Wholes& x;  // of each four neighbours the middle two have changed places
  explicit Codes(const Wholes& rows) : x(rows) {}

  template <int kRows, int kStrips, int kCount>
  HWY_INLINE void sum(const NarrowMatrix& w, std::int64_t strip, std::int64_t first, std::int64_t row, V* y) const {
    const Full d;
    constexpr std::int64_t kGroups = kCodeBlock / 4;  // of four rows of W
    constexpr int kSums = kRows * kStrips * kCount;
    const std::int64_t groups = ceil_div(w.k(), 4), blocks = code_blocks(w.k());
    const std::byte* panel = w.strip(strip) + first * 4;
    const std::int16_t* factors = x.whole + row * x.padded;
    const std::int32_t* total = x.sum + row * blocks;
    hn::Vec<Ints> sums[kSums];
    if (blocks == 1) {
      sum_groups<kRows, kStrips, kCount>(groups, panel, w.strip_bytes(), factors, total, blocks, sums);
#pragma GCC unroll 32
      for (int i = 0; i < kSums; ++i) y[i] = hn::ConvertTo(d, sums[i]);
    } else {
      Exact all[kSums];
#pragma GCC unroll 32
      for (Exact& one : all) one.clear();
      for (std::int64_t block = 0; block < blocks; ++block) {
        sum_groups<kRows, kStrips, kCount>(std::min(kGroups, groups - block * kGroups), panel, w.strip_bytes(), factors, total + block,
                                           blocks, sums);
#pragma GCC unroll 32
        for (int i = 0; i < kSums; ++i) all[i].add(sums[i]);
        factors += kCodeBlock;
        panel += kGroups / kPart * 4 * kStrip;
      }
#pragma GCC unroll 32
      for (int i = 0; i < kSums; ++i) y[i] = all[i].rounded();
    }
#pragma GCC unroll 32
    for (int i = 0; i < kSums; ++i) {
      const std::int64_t column = (strip + i / kCount % kStrips) * kStrip + first + i % kCount * kLanes;
      const V scale = load_row(w.scales().data() + std::min(column, w.n()), w.n() - column);
      y[i] = hn::Mul(y[i], hn::Mul(hn::Set(d, x.scale[row + i / (kStrips * kCount)]), scale));
    }
  }

 private:
  static constexpr int kPart = kTernary ? 4 : 1;  // groups in one load

  // sums = those of so many groups; the factors of row r have the sum total[r * blocks].
  template <int kRows, int kStrips, int kCount>
  HWY_INLINE void sum_groups(std::int64_t groups, const std::byte* panel, std::size_t next, const std::int16_t* factors,
                             const std::int32_t* total, std::int64_t blocks, hn::Vec<Ints>* sums) const {
    const Ints di;
    constexpr int kAdded = kTernary ? 1 : 128, kAcross = kStrips * kCount;
    constexpr int kTogether = 2;  // vectors for which a factor is loaded once
    static_assert(kAcross % kTogether == 0);
    const std::int64_t padded = x.padded;
    constexpr std::size_t kBytes = 4 * static_cast<std::size_t>(kLanes);
#pragma GCC unroll 32
    for (int i = 0; i < kRows * kAcross; ++i) sums[i] = hn::Set(di, -kAdded * total[i / kAcross * blocks]);
    for (std::int64_t g = 0; g < groups; g += kPart) {
#pragma GCC unroll 4
      for (int part = 0; part < kPart; ++part) {
#pragma GCC unroll 8
        for (int c = 0; c < kAcross; c += kTogether) {
          hn::Vec<Ints> even[kTogether], odd[kTogether];
#pragma GCC unroll 2
          for (int j = 0; j < kTogether; ++j) {
            const std::size_t strip = static_cast<std::size_t>((c + j) / kCount), vector = static_cast<std::size_t>((c + j) % kCount);
            const auto stored = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(panel + strip * next + vector * kBytes));
            even[j] = pair_of(stored, 2 * part);
            odd[j] = pair_of(stored, 2 * part + 8);
          }
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const std::int16_t* factor = factors + r * padded + 4 * part;
            const auto first = pair_at(factor), second = pair_at(factor + 2);
#pragma GCC unroll 2
            for (int j = 0; j < kTogether; ++j) {
              auto& one = sums[r * kAcross + c + j];
              one = add_pair_products(odd[j], second, add_pair_products(even[j], first, one));
            }
          }
        }
      }
      factors += 4 * kPart;
      panel += 4 * kStrip;
    }
  }

  // The codes of two rows of W, those whose stored bits begin at `bit` and `bit` + 16.
  static HWY_INLINE hn::Vec<Ints> pair_of(hn::Vec<Ints> stored, int bit) {
    constexpr int kBits = kTernary ? 2 : 8;
#if HWY_TARGET == HWY_SCALAR  // one lane does not divide
    const hn::RebindToUnsigned<Ints> du;
    const auto shifted = hn::ShiftRightSame(hn::BitCast(du, stored), bit);
    return hn::BitCast(Ints(), hn::And(shifted, hn::Set(du, ((1U << kBits) - 1) * 0x10001U)));
#else
    const hn::Repartition<std::uint16_t, Ints> halves;
    const auto shifted = hn::ShiftRightSame(hn::BitCast(halves, stored), bit);
    if (bit + kBits == 16) return hn::BitCast(Ints(), shifted);  // a constant: the loops around are unrolled
    return hn::BitCast(Ints(), hn::And(shifted, hn::Set(halves, (1 << kBits) - 1)));
#endif
  }
};

void FloatStrips(const StripRange& range, std::int64_t rows, const float* x) { pass_all(Floats(x), range, rows); }
void WholeStrips(const StripRange& range, const Wholes& x) { pass_all(Pairs(x), range, x.rows); }

void CodeStrips(const StripRange& range, const Wholes& x) {
  if (range.w->type() == Narrow::ternary) {
    pass_all(Codes<true>(x), range, x.rows);
  } else {
    pass_all(Codes<false>(x), range, x.rows);
  }
}

// max |x|, 0 below kSmallestRow, NaN when an x is not finite.
float largest_of(std::int64_t k, const float* x) {
  const Full d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float poison = sum_of(k, [&](auto df, std::int64_t i) HWY_ATTR { return hn::Mul(hn::LoadU(df, x + i), hn::Zero(df)); });
  if (poison != 0) return poison;
  V all = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= k; i += lanes) all = hn::Max(all, hn::Abs(hn::LoadU(d, x + i)));
  float most = hn::GetLane(hn::MaxOfLanes(d, all));
  for (; i < k; ++i) most = std::max(most, x[i] < 0 ? -x[i] : x[i]);
  return most < kSmallestRow ? 0 : most;
}

// One row in whole numbers; a scale for every block.
void WholesOf(std::int64_t k, std::int64_t padded, const float* x, std::int16_t* whole, float* scale) {
  std::fill(whole + k, whole + padded, std::int16_t{0});
  const I16Blocks blocks(k);
  for (std::int64_t block = 0; block < blocks.count; ++block) {
    const float* from = x + block * blocks.size;
    std::int16_t* to = whole + block * blocks.size;
    const std::int64_t depth = blocks.depth(block);
    const float most = largest_of(depth, from);
    scale[block] = most;
    if (!(most > 0)) {
      std::fill_n(to, depth, std::int16_t{0});
      continue;
    }
    const float whole_most = kI16Largest / most;  // neither it nor a square below leaves the range of a float
    const float squares = sum_of(depth, [&](auto d, std::int64_t i) HWY_ATTR {
      const auto v = hn::Mul(hn::LoadU(d, from + i), hn::Set(d, whole_most));
      return hn::Mul(v, v);
    });
    const float share = std::max(std::sqrt(squares) / kI16Norm, 1.0F);
    const float inverse = whole_most / share;
    scale[block] = most / kI16Largest * share;
    each(depth, [&](auto d, std::int64_t i) HWY_ATTR {
      const hn::Rebind<std::int16_t, decltype(d)> half;
      hn::StoreU(hn::DemoteTo(half, hn::NearestInt(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, inverse)))), half, to + i);
    });
  }
}

constexpr float kLargestFactor = 32512;  // of a code: 127 * 256, so that both digits fit a byte
static_assert(kCodeBlock * 128 * static_cast<std::int64_t>(kLargestFactor) < std::int64_t{1} << 31);

// The same row as DigitsOf() in whole numbers, of each four neighbours the middle two exchanged; sum [code_blocks(k)], of every block.
float FactorsOf(std::int64_t k, std::int64_t padded, const float* x, std::int16_t* whole, std::int32_t* sum) {
  const float most = largest_of(k, x);
  const bool none = !(most > 0);
  std::fill(whole + (none ? 0 : k), whole + padded, std::int16_t{0});
  if (none) {
    std::fill_n(sum, code_blocks(k), 0);
    return most;
  }
  const float inverse = kLargestFactor / most;
  each(k, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::Rebind<std::int16_t, decltype(d)> half;
    hn::StoreU(hn::DemoteTo(half, hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, inverse)))), half, whole + i);
  });
  for (std::int64_t i = 0; i < k; i += kCodeBlock) {
    const float total = sum_of(std::min(kCodeBlock, k - i), [&](auto d, std::int64_t j) HWY_ATTR {
      const hn::Rebind<std::int16_t, decltype(d)> half;
      return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<decltype(d)>(), hn::LoadU(half, whole + i + j)));
    });
    *sum++ = static_cast<std::int32_t>(total);  // exact, below 2^24
  }
  for (std::int64_t i = 0; i < padded; i += 4) std::swap(whole[i + 1], whole[i + 2]);
  return most / kLargestFactor;
}

// One row in two digits. Returns the scale: NaN when an x is not finite.
float DigitsOf(std::int64_t k, std::int64_t padded, const float* x, std::int8_t* high, std::int8_t* low, std::int32_t* sum_high,
               std::int32_t* sum_low) {
  const float most = largest_of(k, x);
  const bool none = !(most > 0);
  std::fill(high + (none ? 0 : k), high + padded, std::int8_t{0});
  std::fill(low + (none ? 0 : k), low + padded, std::int8_t{0});
  if (none) {
    *sum_high = *sum_low = 0;
    return most;
  }
  const float inverse = kLargestFactor / most;
  const Ints di;
  auto all_high = hn::Zero(di), all_low = all_high;
  std::int32_t rest_high = 0, rest_low = 0;
  each(k, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> dq;
    const hn::Rebind<std::int8_t, decltype(d)> bytes;
    const auto q = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, inverse)));
    const auto h = hn::ShiftRight<8>(hn::Add(q, hn::Set(dq, 128)));
    const auto l = hn::Sub(q, hn::ShiftLeft<8>(h));
    hn::StoreU(hn::DemoteTo(bytes, h), bytes, high + i);
    hn::StoreU(hn::DemoteTo(bytes, l), bytes, low + i);
    if constexpr (std::is_same_v<decltype(d), Full>) {
      all_high = hn::Add(all_high, h);
      all_low = hn::Add(all_low, l);
    } else {
      rest_high += hn::GetLane(h);
      rest_low += hn::GetLane(l);
    }
  });
  *sum_high = rest_high + hn::GetLane(hn::SumOfLanes(di, all_high));
  *sum_low = rest_low + hn::GetLane(hn::SumOfLanes(di, all_low));
  return most / kLargestFactor;
}

// A checksum. size: a multiple of 64, as all strips are.
std::uint64_t ReadBytes(const std::byte* from, std::size_t size) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto* words = reinterpret_cast<const std::uint64_t*>(from);
  const std::size_t lanes = hn::Lanes(d), count = size / 8;
  auto a = hn::Zero(d), b = a, c = a, e = a;
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Xor(a, hn::LoadU(d, words + i));
    b = hn::Xor(b, hn::LoadU(d, words + i + lanes));
    c = hn::Xor(c, hn::LoadU(d, words + i + 2 * lanes));
    e = hn::Xor(e, hn::LoadU(d, words + i + 3 * lanes));
  }
  for (; i < count; i += lanes) a = hn::Xor(a, hn::LoadU(d, words + i));
  HWY_ALIGN std::uint64_t all[HWY_LANES(std::uint64_t)];
  hn::Store(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)), d, all);
  std::uint64_t sum = 0;
  for (std::size_t lane = 0; lane < lanes; ++lane) sum ^= all[lane];
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops {
namespace cpu {
namespace {

HWY_EXPORT(FloatStrips);
HWY_EXPORT(WholeStrips);
HWY_EXPORT(CodeStrips);
HWY_EXPORT(WholesOf);
HWY_EXPORT(FactorsOf);
HWY_EXPORT(DigitsOf);
HWY_EXPORT(ReadBytes);

bool has_codes(Narrow type) { return type == Narrow::int8 || type == Narrow::ternary; }

// The share of thread `id` of `team` in the strips of several matrices one behind the other, by rows of weights: body(index, first, last).
template <class Matrix, class Body>
void for_strips(std::size_t count, const Matrix& matrix, std::int64_t id, std::int64_t team, Sweep sweep, const Body& body) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) total += matrix(i).strips() * matrix(i).k();
  const std::int64_t begin = total * id / team, end = total * (id + 1) / team;
  std::int64_t at = sweep == Sweep::forward ? 0 : total;
  for (std::size_t turn = 0; turn < count; ++turn) {
    const std::size_t i = sweep == Sweep::forward ? turn : count - 1 - turn;
    const NarrowMatrix& w = matrix(i);
    const std::int64_t size = w.strips() * w.k();
    if (sweep == Sweep::backward) at -= size;
    const auto strip = [&](std::int64_t place) { return place <= at ? 0 : place >= at + size ? w.strips() : ceil_div(place - at, w.k()); };
    const std::int64_t first = strip(begin), last = strip(end);
    if (first < last) body(i, first, last);
    if (sweep == Sweep::forward) at += size;
  }
}

// Every x that is rounded for its matrix, each once.
class RoundedInputs {
 public:
  struct Input {
    const float* x;
    std::int64_t rows, k;
    bool codes, digits;                                    // for matrices of codes, else of bf16; for codes: in digits
    float* scale = nullptr;                                // codes: [rows]; else [rows, blocks of k]
    std::int8_t *high = nullptr, *low = nullptr;           // digits: [rows, padded]
    std::int32_t *sum_high = nullptr, *sum_low = nullptr;  // digits: [rows]
    std::int16_t* whole = nullptr;                         // else: [rows, padded]
    std::int32_t* sum = nullptr;                           // codes in whole numbers: [rows, code_blocks(k)]

    std::int64_t padded() const { return round_up(k, 16); }
    std::int64_t blocks() const { return I16Blocks(k).count; }
    std::int64_t bytes() const { return rows * (2 * padded() + (digits ? 12 : 4 * (codes ? 1 + code_blocks(k) : blocks()))); }
    Digits as_digits() const { return {rows, padded(), high, low, scale, sum_high, sum_low}; }
    Wholes as_wholes() const { return {rows, padded(), whole, scale, sum}; }

    void place(std::byte* space) {
      scale = reinterpret_cast<float*>(space + 2 * rows * padded());
      if (digits) {
        high = reinterpret_cast<std::int8_t*>(space);
        low = high + rows * padded();
        sum_high = reinterpret_cast<std::int32_t*>(scale + rows);
        sum_low = sum_high + rows;
      } else {
        whole = reinterpret_cast<std::int16_t*>(space);
        if (codes) sum = reinterpret_cast<std::int32_t*>(scale + rows);
      }
    }
    void round(std::int64_t r) const {
      const std::int64_t at = r * padded();
      if (digits) {
        scale[r] = HWY_DYNAMIC_DISPATCH(DigitsOf)(k, padded(), x + r * k, high + at, low + at, sum_high + r, sum_low + r);
      } else if (codes) {
        scale[r] = HWY_DYNAMIC_DISPATCH(FactorsOf)(k, padded(), x + r * k, whole + at, sum + r * code_blocks(k));
      } else {
        HWY_DYNAMIC_DISPATCH(WholesOf)(k, padded(), x + r * k, whole + at, scale + r * blocks());
      }
    }
  };

  RoundedInputs(std::int64_t rows, std::span<const Product<float>> products) {
    std::int64_t bytes = 0, elements = 0;
    for (const auto& p : products) {
      if (p.w->type() == Narrow::f32 || find(p) != nullptr) continue;
      const bool codes = has_codes(p.w->type());
      inputs_.push_back({.x = p.x, .rows = rows, .k = p.w->k(), .codes = codes, .digits = codes && native_vnni()});
      bytes += inputs_.back().bytes();
      elements += rows * p.w->k();
    }
    if (inputs_.empty()) return;
    auto* space = static_cast<std::byte*>(scratch_bytes(Slot::convert_a, static_cast<std::size_t>(bytes)));
    for (Input& input : inputs_) {
      input.place(space);
      space += input.bytes();
    }
    for_ranges(static_cast<std::int64_t>(inputs_.size()) * rows, 1, elements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) inputs_[static_cast<std::size_t>(i / rows)].round(i % rows);
    });
  }
  const Input* find(const Product<float>& p) const {
    for (const Input& input : inputs_) {
      if (input.x == p.x && input.k == p.w->k() && input.codes == has_codes(p.w->type())) return &input;
    }
    return nullptr;
  }

 private:
  std::vector<Input> inputs_;
};

}  // namespace

void products(std::int64_t rows, std::span<const Product<float>> list, Sweep sweep) {
  if (rows == 0) return;
  constexpr std::int64_t kSerialProducts = 32 * 1024;  // below this many one thread does it
  const RoundedInputs inputs(rows, list);
  const bool vnni = native_vnni();
  const auto float_strips = HWY_DYNAMIC_DISPATCH(FloatStrips);
  const auto whole_strips = vnni ? whole_strips_vnni : HWY_DYNAMIC_DISPATCH(WholeStrips);
  const auto code_strips = HWY_DYNAMIC_DISPATCH(CodeStrips);
  std::int64_t total = 0;
  for (const auto& p : list) total += p.w->n() * p.w->k() * rows;
  const auto multiply = [&](std::size_t i, std::int64_t first, std::int64_t last) {
    const StripRange range{list[i].w, first, last, list[i].y};
    if (list[i].w->type() == Narrow::f32) {
      float_strips(range, rows, list[i].x);
    } else if (const auto* input = inputs.find(list[i]); input->digits) {
      dot_strips_vnni(range, input->as_digits());
    } else {
      (input->codes ? code_strips : whole_strips)(range, input->as_wholes());
    }
  };
  const auto matrix = [&](std::size_t i) -> const NarrowMatrix& { return *list[i].w; };
  const auto share = [&](std::int64_t id, std::int64_t team) {
    for_strips(list.size(), matrix, id, team, sweep, [&](std::size_t i, std::int64_t first, std::int64_t last) {
      if (sweep == Sweep::forward) {
        multiply(i, first, last);
      } else {
        constexpr std::int64_t kPiece = 4;  // strips
        for (std::int64_t end = last; end > first; end -= kPiece) multiply(i, std::max(first, end - kPiece), end);
      }
    });
  };
  if (total < kSerialProducts) {
    share(0, 1);
  } else {
    on_team(share);
  }
}

}  // namespace cpu

std::uint64_t read_through(std::span<const NarrowMatrix* const> matrices) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(cpu::ReadBytes);
  std::atomic<std::uint64_t> sum = 0;
  const auto share = [&](std::int64_t id, std::int64_t team) {
    cpu::for_strips(
        matrices.size(), [&](std::size_t i) -> const NarrowMatrix& { return *matrices[i]; }, id, team, Sweep::forward,
        [&](std::size_t i, std::int64_t first, std::int64_t last) {
          sum ^= kernel(matrices[i]->strip(first), static_cast<std::size_t>(last - first) * matrices[i]->strip_bytes());
        });
  };
  cpu::on_team(share);
  return sum;
}

}  // namespace dormouse::ops
#endif
