// Products with narrow matrices (ops/narrow.h). Weights are widened in registers, once for several rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/narrow.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/narrow_kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu_level.h"

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
#if HWY_TARGET <= HWY_AVX3
constexpr int kStripsAlone = 4, kRowsTogether = 8;
#elif HWY_TARGET <= HWY_AVX2
constexpr int kStripsAlone = 2, kRowsTogether = 2;
#else
constexpr int kStripsAlone = 1, kRowsTogether = 1;
#endif

HWY_INLINE void widen_row(const float* at, V* out) {
  const Full d;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) out[v] = hn::LoadU(d, at + v * kLanes);
}

HWY_INLINE void widen_row(const std::uint32_t* at, V* out) {
  const Full d;
  const hn::RebindToUnsigned<Full> du;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors / 2; ++v) {
    const auto words = hn::LoadU(du, at + v * kLanes);
    out[v] = hn::BitCast(d, hn::ShiftLeft<16>(words));
    out[kVectors / 2 + v] = hn::BitCast(d, hn::And(words, hn::Set(du, 0xffff0000U)));
  }
}

// to [32], or its first `columns`.
HWY_INLINE void store_row(const V* sums, float* to, std::int64_t columns) {
  const Full d;
  HWY_ALIGN float tile[kStrip];
  float* place = columns >= kStrip ? to : tile;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, place + v * kLanes);
  if (place == tile) std::copy_n(tile, columns, to);
}

// Strips [strip, strip + kStrips) and rows [row, row + kRows). Word: float, or std::uint32_t for two bf16.
template <class Word, int kRows, int kStrips>
HWY_NOINLINE void pass(const StripRange& range, std::int64_t strip, const float* x, std::int64_t row) {
  const Full d;
  const std::int64_t k = range.w->k(), n = range.w->n();
  constexpr std::int64_t kStep = std::is_same_v<Word, float> ? kStrip : kStrip / 2;  // words of a row
  const Word* w = reinterpret_cast<const Word*>(range.w->strip(strip));
  const auto next = static_cast<std::int64_t>(range.w->strip_bytes() / sizeof(Word));
  V sums[kRows * kStrips * kVectors];
#pragma GCC unroll 32
  for (int i = 0; i < kRows * kStrips * kVectors; ++i) sums[i] = hn::Zero(d);
  const float* xr = x + row * k;
  for (std::int64_t i = 0; i < k; ++i) {
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) {
      V wide[kVectors];
      widen_row(w + s * next, wide);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const V factor = hn::Set(d, xr[r * k + i]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          V& sum = sums[(r * kStrips + s) * kVectors + v];
          sum = hn::MulAdd(factor, wide[v], sum);
        }
      }
    }
    w += kStep;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows * kStrips; ++i) {
    const std::int64_t j = (strip + i % kStrips) * kStrip;
    store_row(sums + i * kVectors, range.y + (row + i / kStrips) * n + j, n - j);
  }
}

// Rows [row, rows) in groups of kRows, then the rest in smaller ones. Fewer rows: more columns, for as many sums under way.
template <class Word, int kRows>
HWY_INLINE void rows_of(const StripRange& range, std::int64_t first, std::int64_t last, const float* x, std::int64_t row,
                        std::int64_t rows) {
  constexpr int kStrips = kRows == 1 ? kStripsAlone : kRows < kRowsTogether ? 2 : 1;
  for (; row + kRows <= rows; row += kRows) {
    std::int64_t strip = first;
    for (; strip + kStrips <= last; strip += kStrips) pass<Word, kRows, kStrips>(range, strip, x, row);
    if constexpr (kStrips > 1) {
      for (; strip < last; ++strip) pass<Word, kRows, 1>(range, strip, x, row);
    }
  }
  if constexpr (kRows > 1) rows_of<Word, kRows / 2>(range, first, last, x, row, rows);
}

// Few strips at a time, so that they stay in the cache while all rows pass.
template <class Word>
HWY_INLINE void wide_strips(const StripRange& range, std::int64_t rows, const float* x) {
  for (std::int64_t strip = range.first; strip < range.last; strip += kStripsAlone)
    rows_of<Word, kRowsTogether>(range, strip, std::min<std::int64_t>(range.last, strip + kStripsAlone), x, 0, rows);
}

void WideStrips(const StripRange& range, std::int64_t rows, const float* x) {
  if (range.w->type() == Narrow::bf16) {
    wide_strips<std::uint32_t>(range, rows, x);
  } else {
    wide_strips<float>(range, rows, x);
  }
}

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

// One row in two digits. Returns the scale: NaN when an x is not finite.
float DigitsOf(std::int64_t k, std::int64_t padded, const float* x, std::int8_t* high, std::int8_t* low, std::int32_t* sum_high,
               std::int32_t* sum_low) {
  constexpr float kLargest = 32512;  // 127 * 256: both digits fit a byte
  const float poison = sum_of(k, [&](auto d, std::int64_t i) HWY_ATTR { return hn::Mul(hn::LoadU(d, x + i), hn::Zero(d)); });
  float most = 0;
  {
    const Full d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    V all = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + lanes <= k; i += lanes) all = hn::Max(all, hn::Abs(hn::LoadU(d, x + i)));
    most = hn::GetLane(hn::MaxOfLanes(d, all));
    for (; i < k; ++i) most = std::max(most, x[i] < 0 ? -x[i] : x[i]);
  }
  constexpr float kSmallest = 1e-33F;  // below it the scale is a denormal, and the inverse soon infinite
  const bool none = poison != 0 || most < kSmallest;
  std::fill(high + (none ? 0 : k), high + padded, std::int8_t{0});
  std::fill(low + (none ? 0 : k), low + padded, std::int8_t{0});
  if (none) {
    *sum_high = *sum_low = 0;
    return poison;
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

HWY_EXPORT(WideStrips);
HWY_EXPORT(DotStrips);
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

// Digits of every x that a matrix of codes multiplies, each once.
class AllDigits {
 public:
  AllDigits(std::int64_t rows, std::span<const Product<float>> products) {
    std::int64_t bytes = 0;
    for (const auto& p : products) {
      if (!has_codes(p.w->type()) || find(p) != nullptr) continue;
      inputs_.push_back({p.x, p.w->k(), {.rows = rows, .padded = round_up(p.w->k(), 16)}});
      bytes += rows * (2 * inputs_.back().digits.padded + 12);
    }
    if (inputs_.empty()) return;
    auto* next = static_cast<std::int8_t*>(scratch_bytes(Slot::convert_a, static_cast<std::size_t>(bytes)));
    for (auto& input : inputs_) {
      const std::int64_t padded = input.digits.padded;
      auto* high = next;
      auto* low = high + rows * padded;
      auto* scale = reinterpret_cast<float*>(low + rows * padded);
      auto* sum_high = reinterpret_cast<std::int32_t*>(scale + rows);
      auto* sum_low = sum_high + rows;
      next = reinterpret_cast<std::int8_t*>(sum_low + rows);
      input.digits = {rows, padded, high, low, scale, sum_high, sum_low};
      const auto kernel = HWY_DYNAMIC_DISPATCH(DigitsOf);
      for_ranges(rows, 1, rows * input.k, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          scale[r] = kernel(input.k, padded, input.x + r * input.k, high + r * padded, low + r * padded, sum_high + r, sum_low + r);
      });
    }
  }
  const Digits* find(const Product<float>& p) const {
    for (const auto& input : inputs_) {
      if (input.x == p.x && input.k == p.w->k()) return &input.digits;
    }
    return nullptr;
  }

 private:
  struct Input {
    const float* x;
    std::int64_t k;
    Digits digits;
  };
  std::vector<Input> inputs_;
};

}  // namespace

void products(std::int64_t rows, std::span<const Product<float>> list, Sweep sweep) {
  if (rows == 0) return;
  constexpr std::int64_t kSerialProducts = 32 * 1024;  // below this many one thread does it
  const AllDigits digits(rows, list);
  const auto wide = HWY_DYNAMIC_DISPATCH(WideStrips);
  const auto dot = native_vnni() ? dot_strips_vnni : HWY_DYNAMIC_DISPATCH(DotStrips);
  std::int64_t total = 0;
  for (const auto& p : list) total += p.w->n() * p.w->k() * rows;
  const auto multiply = [&](std::size_t i, std::int64_t first, std::int64_t last) {
    const StripRange range{list[i].w, first, last, list[i].y};
    if (has_codes(list[i].w->type())) {
      dot(range, *digits.find(list[i]));
    } else {
      wide(range, rows, list[i].x);
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
