// Products with narrow matrices (ops/narrow.h). A weight is loaded once for several rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/narrow.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

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

// The work of one pass: kRows rows by kStrips strips, kVectors vectors each.
constexpr std::int64_t kStrip = NarrowMatrix::kStrip;
constexpr int kLanes = static_cast<int>(HWY_LANES(float));
constexpr int kVectors = static_cast<int>(kStrip) / kLanes;

// Of both kernels of pass_all() below: as many sums as there are registers for.
struct Passes {
#if HWY_TARGET <= HWY_AVX3
  static constexpr int kStripsAlone = 4, kRowsTogether = 8;
#elif HWY_TARGET <= HWY_AVX2
  static constexpr int kStripsAlone = 2, kRowsTogether = 2;
#else
  static constexpr int kStripsAlone = 1, kRowsTogether = 1;
#endif
  static constexpr int strips_of(int rows) { return rows == 1 ? kStripsAlone : rows < kRowsTogether ? 2 : 1; }
};

// to [32], or its first `columns`.
HWY_INLINE void store_row(const V* sums, float* to, std::int64_t columns) {
  const Full d;
  HWY_ALIGN float tile[kStrip];
  float* place = columns >= kStrip ? to : tile;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, place + v * kLanes);
  if (place == tile) std::copy_n(tile, columns, to);
}

// sums += factor w over steps of k, in every column of kStrips strips and every row of kRows: w are the vectors of the first strip's row,
// those of the next strip `next` bytes on; factor(r, i) is that of row r at step i.
template <int kRows, int kStrips, class Factor, class Add, class Sum>
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
        for (int v = 0; v < kVectors; ++v) {
          Sum& sum = sums[(r * kStrips + s) * kVectors + v];
          sum = add(x, at + static_cast<std::size_t>(v) * kBytes, sum);
        }
      }
    }
    w += kBytes * kVectors;
  }
}

// f32: strips [strip, strip + kStrips) and rows [row, row + kRows).
struct Floats : Passes {
  const float* x;
  explicit Floats(const float* rows) : x(rows) {}

  template <int kRows, int kStrips>
  HWY_NOINLINE void pass(const StripRange& range, std::int64_t strip, std::int64_t row) const {
    const Full d;
    const std::int64_t k = range.w->k(), n = range.w->n();
    V sums[kRows * kStrips * kVectors];
#pragma GCC unroll 32
    for (V& sum : sums) sum = hn::Zero(d);
    const float* xr = x + row * k;
    add_steps<kRows, kStrips>(
        k, range.w->strip(strip), range.w->strip_bytes(), [&](int r, std::int64_t i) HWY_ATTR { return hn::Set(d, xr[r * k + i]); },
        [&](V factor, const std::byte* w, V sum)
            HWY_ATTR { return hn::MulAdd(factor, hn::LoadU(d, reinterpret_cast<const float*>(w)), sum); },
        sums);
#pragma GCC unroll 16
    for (int i = 0; i < kRows * kStrips; ++i) {
      const std::int64_t j = (strip + i % kStrips) * kStrip;
      store_row(sums + i * kVectors, range.y + (row + i / kStrips) * n + j, n - j);
    }
  }
};

// sums + a[0] b[0] + a[1] b[1] in every lane, of two 16-bit whole numbers each; exact.
HWY_INLINE hn::Vec<Ints> add_pair_products(hn::Vec<Ints> a, hn::Vec<Ints> b, hn::Vec<Ints> sums) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
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

// bf16: strips [strip, strip + kStrips) and rows [row, row + kRows).
struct Pairs : Passes {
  const Wholes& x;
  explicit Pairs(const Wholes& rows) : x(rows) {}

  template <int kRows, int kStrips>
  HWY_NOINLINE void pass(const StripRange& range, std::int64_t strip, std::int64_t row) const {
    const Full d;
    const Ints di;
    const std::int64_t n = range.w->n();
    const I16Blocks blocks(range.w->k());
    const std::byte* panel = range.w->strip(strip);
    const float* scales = range.w->scales().data() + strip * kStrip;
    const std::int16_t* factors = x.whole + row * x.padded;
    V y[kRows * kStrips * kVectors];
    for (V& one : y) one = hn::Zero(d);
    for (std::int64_t block = 0; block < blocks.count; ++block) {
      hn::Vec<Ints> sums[kRows * kStrips * kVectors];
#pragma GCC unroll 32
      for (auto& sum : sums) sum = hn::Zero(di);
      const std::int64_t steps = ceil_div(blocks.depth(block), 2);
      add_steps<kRows, kStrips>(
          steps, panel, range.w->strip_bytes(),
          [&](int r, std::int64_t i) HWY_ATTR {
            std::int32_t pair;
            std::copy_n(reinterpret_cast<const char*>(factors + r * x.padded + 2 * i), 4, reinterpret_cast<char*>(&pair));
            return hn::Set(di, pair);
          },
          [&](hn::Vec<Ints> pair, const std::byte* w, hn::Vec<Ints> sum)
              HWY_ATTR { return add_pair_products(pair, hn::LoadU(di, reinterpret_cast<const std::int32_t*>(w)), sum); },
          sums);
#pragma GCC unroll 32
      for (int i = 0; i < kRows * kStrips * kVectors; ++i) {
        const std::int64_t r = row + i / (kStrips * kVectors), c = i % (kStrips * kVectors) * kLanes;
        const V scale = hn::Mul(hn::Set(d, x.scale[r * blocks.count + block]), hn::LoadU(d, scales + c));
        y[i] = hn::MulAdd(hn::ConvertTo(d, sums[i]), scale, y[i]);
      }
      panel += steps * 4 * kStrip;
      scales += range.w->strips() * kStrip;
      factors += blocks.size;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows * kStrips; ++i) {
      const std::int64_t j = (strip + i % kStrips) * kStrip;
      store_row(y + i * kVectors, range.y + (row + i / kStrips) * n + j, n - j);
    }
  }
};

void FloatStrips(const StripRange& range, std::int64_t rows, const float* x) { pass_all(Floats(x), range, rows); }
void WholeStrips(const StripRange& range, const Wholes& x) { pass_all(Pairs(x), range, x.rows); }

// sums += stored code times digit over the four bytes of every 32-bit lane; exact.
HWY_INLINE hn::Vec<Ints> dot4(hn::Vec<Ints> codes, hn::Vec<Ints> digits, hn::Vec<Ints> sums) {
  const Ints di;
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::Repartition<std::int16_t, Ints> half;
  const hn::RebindToUnsigned<decltype(half)> uhalf;
  const auto c = hn::BitCast(uhalf, codes);
  const auto even = hn::BitCast(half, hn::And(c, hn::Set(uhalf, 0xff))), odd = hn::BitCast(half, hn::ShiftRight<8>(c));
  const auto x = hn::BitCast(half, digits);
  auto unused = hn::Zero(di);  // on x86 the sum of each lane's pair goes to its lane of the first
  sums = hn::ReorderWidenMulAccumulate(di, even, hn::ShiftRight<8>(hn::ShiftLeft<8>(x)), sums, unused);
  return hn::ReorderWidenMulAccumulate(di, odd, hn::ShiftRight<8>(x), sums, unused);
#else
  const auto byte = hn::Set(di, 0xff);
  sums = hn::Add(sums, hn::Mul(hn::And(codes, byte), hn::ShiftRight<24>(hn::ShiftLeft<24>(digits))));
  sums = hn::Add(sums, hn::Mul(hn::And(hn::ShiftRight<8>(codes), byte), hn::ShiftRight<24>(hn::ShiftLeft<16>(digits))));
  sums = hn::Add(sums, hn::Mul(hn::And(hn::ShiftRight<16>(codes), byte), hn::ShiftRight<24>(hn::ShiftLeft<8>(digits))));
  return hn::Add(sums, hn::Mul(hn::And(hn::ShiftRight<24>(codes), byte), hn::ShiftRight<24>(digits)));
#endif
}

// One strip of one row.
template <bool kTernary>
HWY_INLINE void dot_strip(const StripRange& range, std::int64_t strip, const Digits& x, std::int64_t row) {
  const Ints di;
  const Full d;
  constexpr std::int64_t kOffset = kTernary ? 1 : 128;
  const std::int64_t n = range.w->n();
  const auto* panel = reinterpret_cast<const std::int32_t*>(range.w->strip(strip));
  hn::Vec<Ints> high[kVectors], low[kVectors];
  for (int v = 0; v < kVectors; ++v) high[v] = low[v] = hn::Zero(di);
  const std::int64_t groups = (range.w->k() + 3) / 4;
  for (std::int64_t g = 0; g < groups; ++g) {
    std::int32_t h, l;
    std::copy_n(reinterpret_cast<const char*>(x.high + row * x.padded + 4 * g), 4, reinterpret_cast<char*>(&h));
    std::copy_n(reinterpret_cast<const char*>(x.low + row * x.padded + 4 * g), 4, reinterpret_cast<char*>(&l));
    const auto* at = panel + (kTernary ? g / 4 : g) * kStrip;
    for (int v = 0; v < kVectors; ++v) {
      auto codes = hn::LoadU(di, at + v * kLanes);
      if constexpr (kTernary) codes = hn::And(hn::ShiftRightSame(codes, static_cast<int>(g % 4) * 2), hn::Set(di, 0x03030303));
      high[v] = dot4(codes, hn::Set(di, h), high[v]);
      low[v] = dot4(codes, hn::Set(di, l), low[v]);
    }
  }
  const auto more_high = hn::Set(di, static_cast<std::int32_t>(kOffset * x.sum_high[row]));
  const auto more_low = hn::Set(di, static_cast<std::int32_t>(kOffset * x.sum_low[row]));
  HWY_ALIGN float tile[kStrip];
  for (int v = 0; v < kVectors; ++v) {
    const auto h = hn::ConvertTo(d, hn::Sub(high[v], more_high)), l = hn::ConvertTo(d, hn::Sub(low[v], more_low));
    hn::StoreU(hn::MulAdd(h, hn::Set(d, 256.0F), l), d, tile + v * kLanes);  // 256 h is exact: the same with one rounding or two
  }
  const std::int64_t j = strip * kStrip;
  for (std::int64_t c = 0; c < std::min(kStrip, n - j); ++c) {
    const float scale = x.scale[row] * range.w->scales()[static_cast<std::size_t>(j + c)];
    range.y[row * n + j + c] = tile[c] * scale;
  }
}

void DotStrips(const StripRange& range, const Digits& x) {
  for (std::int64_t strip = range.first; strip < range.last; ++strip) {
    for (std::int64_t row = 0; row < x.rows; ++row) {
      if (range.w->type() == Narrow::ternary) {
        dot_strip<true>(range, strip, x, row);
      } else {
        dot_strip<false>(range, strip, x, row);
      }
    }
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

// One row in two digits. Returns the scale: NaN when an x is not finite.
float DigitsOf(std::int64_t k, std::int64_t padded, const float* x, std::int8_t* high, std::int8_t* low, std::int32_t* sum_high,
               std::int32_t* sum_low) {
  constexpr float kLargest = 32512;  // 127 * 256: both digits fit a byte
  const float most = largest_of(k, x);
  const bool none = !(most > 0);
  std::fill(high + (none ? 0 : k), high + padded, std::int8_t{0});
  std::fill(low + (none ? 0 : k), low + padded, std::int8_t{0});
  if (none) {
    *sum_high = *sum_low = 0;
    return most;
  }
  const float inverse = kLargest / most;
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
  return most / kLargest;
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
HWY_EXPORT(DotStrips);
HWY_EXPORT(WholesOf);
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
    const std::int64_t k = std::max<std::int64_t>(w.k(), 1), size = w.strips() * w.k();
    if (sweep == Sweep::backward) at -= size;
    const auto strip = [&](std::int64_t place) { return std::clamp<std::int64_t>(ceil_div(place - at, k), 0, w.strips()); };
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
    bool codes;                                            // for matrices of codes, else of bf16
    float* scale = nullptr;                                // codes: [rows]; else [rows, blocks of k]
    std::int8_t *high = nullptr, *low = nullptr;           // codes: [rows, padded]
    std::int32_t *sum_high = nullptr, *sum_low = nullptr;  // codes: [rows]
    std::int16_t* whole = nullptr;                         // bf16: [rows, padded]

    std::int64_t padded() const { return round_up(k, 16); }
    std::int64_t blocks() const { return I16Blocks(k).count; }
    std::int64_t bytes() const { return rows * (2 * padded() + (codes ? 12 : 4 * blocks())); }
    Digits digits() const { return {rows, padded(), high, low, scale, sum_high, sum_low}; }
    Wholes wholes() const { return {rows, padded(), whole, scale}; }

    void place(std::byte* space) {
      scale = reinterpret_cast<float*>(space + 2 * rows * padded());
      if (codes) {
        high = reinterpret_cast<std::int8_t*>(space);
        low = high + rows * padded();
        sum_high = reinterpret_cast<std::int32_t*>(scale + rows);
        sum_low = sum_high + rows;
      } else {
        whole = reinterpret_cast<std::int16_t*>(space);
      }
    }
    void round(std::int64_t r) const {
      const std::int64_t at = r * padded();
      if (codes) {
        scale[r] = HWY_DYNAMIC_DISPATCH(DigitsOf)(k, padded(), x + r * k, high + at, low + at, sum_high + r, sum_low + r);
      } else {
        HWY_DYNAMIC_DISPATCH(WholesOf)(k, padded(), x + r * k, whole + at, scale + r * blocks());
      }
    }
  };

  RoundedInputs(std::int64_t rows, std::span<const Product<float>> products) {
    std::int64_t bytes = 0, elements = 0;
    for (const auto& p : products) {
      if (p.w->type() == Narrow::f32 || find(p) != nullptr) continue;
      inputs_.push_back({.x = p.x, .rows = rows, .k = p.w->k(), .codes = has_codes(p.w->type())});
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
  const auto dot_strips = vnni ? dot_strips_vnni : HWY_DYNAMIC_DISPATCH(DotStrips);
  std::int64_t total = 0;
  for (const auto& p : list) total += p.w->n() * p.w->k() * rows;
  const auto multiply = [&](std::size_t i, std::int64_t first, std::int64_t last) {
    const StripRange range{list[i].w, first, last, list[i].y};
    if (list[i].w->type() == Narrow::f32) {
      float_strips(range, rows, list[i].x);
    } else if (const auto* input = inputs.find(list[i]); input->codes) {
      dot_strips(range, input->digits());
    } else {
      whole_strips(range, input->wholes());
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
