// Per-target pieces of the KDA kernels. A chunk is 16 rows; matrices in scratch are [16,ld] or [ld,ld] with ld a multiple of 16,
// zero outside the valid rows and columns (a row with q = k = v = g = beta = 0 changes nothing).
//
// With G the running sum of g inside the chunk, S the entering state, B = diag(beta):
//   q^ = q exp(G), k^ = k exp(G), k~ = k exp(G_C - G)                      (exponents <= 0)
//   p_ij = q_i k_j exp(G_i - G_j) for j <= i,   l_ij likewise of k, k for j < i
//   (I + B l) N = B (v - k^ S)     solved by substitution: neither W, U nor the inverse is formed
//   o = q^ S + p N,   S' = exp(G_C) S + k~^T N                             (q scaled by hd^-1/2 beforehand)
// Pair terms, factored about the first row: (q exp(G-G_0)) (k exp(G_0-G))^T, both factors within exp(+-80); a chunk that spans more
// gets them pair by pair. Not about the middle row: the rounding of a row would depend on rows after it, and causality is exact.
#if defined(DORMOUSE_OPS_CPU_KDA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DORMOUSE_OPS_CPU_KDA_INL_H_
#undef DORMOUSE_OPS_CPU_KDA_INL_H_
#else
#define DORMOUSE_OPS_CPU_KDA_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "ops/cpu/kda.h"
#include "ops/cpu/kda_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = hn::MaxLanes(D());

// exp(x) for x <= 88, relative error 2e-7 (0 below -87.3). exp(r) = 1 + r + r^2 c(r), |r| <= ln2/2; c minimax of degree 4 (3e-9).
HWY_INLINE V exp_nats(V x) {
  const D d;
  const hn::Rebind<int32_t, D> di;
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504f)));
  const V nf = hn::ConvertTo(d, n);
  V r = hn::NegMulAdd(nf, hn::Set(d, 0.693359375f), x);  // ln 2 in two parts, the first exact in 10 bits
  r = hn::NegMulAdd(nf, hn::Set(d, -2.12194440e-4f), r);
  V c = hn::MulAdd(hn::Set(d, 0.00138138747f), r, hn::Set(d, 0.00836906396f));
  c = hn::MulAdd(c, r, hn::Set(d, 0.0416684225f));
  c = hn::MulAdd(c, r, hn::Set(d, 0.166665182f));
  c = hn::MulAdd(c, r, hn::Set(d, 0.49999994f));
  const V e = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(r, r), c, r));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), hn::Mul(e, power));
}

enum class Init { zero, add, scaled };  // c starts as 0, c, row_scale[i]*c

template <std::size_t kM, std::size_t kN, Init kInit>
HWY_INLINE void tile(std::size_t depth, const float* HWY_RESTRICT a, std::size_t row_step, std::size_t depth_step,
                     const float* HWY_RESTRICT b, std::size_t ldb, const float* row_scale, float* HWY_RESTRICT c, std::size_t ldc) {
  const D d;
  V sum[kM][kN];
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kM; ++i) {
    HWY_UNROLL(16)
    for (std::size_t j = 0; j < kN; ++j) {
      if constexpr (kInit == Init::zero) sum[i][j] = hn::Zero(d);
      if constexpr (kInit == Init::add) sum[i][j] = hn::Load(d, c + i * ldc + j * kLanes);
      if constexpr (kInit == Init::scaled) sum[i][j] = hn::Mul(hn::Set(d, row_scale[i]), hn::Load(d, c + i * ldc + j * kLanes));
    }
  }
  for (std::size_t x = 0; x < depth; ++x) {
    V bx[kN];
    HWY_UNROLL(16)
    for (std::size_t j = 0; j < kN; ++j) bx[j] = hn::Load(d, b + x * ldb + j * kLanes);
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kM; ++i) {
      const V ax = hn::Set(d, a[i * row_step + x * depth_step]);
      HWY_UNROLL(16)
      for (std::size_t j = 0; j < kN; ++j) sum[i][j] = hn::MulAdd(ax, bx[j], sum[i][j]);
    }
  }
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kM; ++i) {
    HWY_UNROLL(16)
    for (std::size_t j = 0; j < kN; ++j) hn::Store(sum[i][j], d, c + i * ldc + j * kLanes);
  }
}

// c[rows,cols] = init + a b[depth,cols], a_ix at a + i*row_step + x*depth_step. rows a multiple of 8, cols of 16, b and c aligned.
template <Init kInit = Init::zero>
HWY_NOINLINE void gemm(std::size_t rows, std::size_t cols, std::size_t depth, const float* a, std::size_t row_step, std::size_t depth_step,
                       const float* b, std::size_t ldb, float* c, std::size_t ldc, const float* row_scale = nullptr) {
  constexpr std::size_t kM = kLanes >= 16 ? 8 : kLanes == 8 ? 4 : 2;
  constexpr std::size_t kN = kLanes >= 8 ? 2 : 4;
  const auto scale_at = [row_scale](std::size_t i) { return kInit == Init::scaled ? row_scale + i : nullptr; };
  std::size_t col = 0;
  for (; col + kN * kLanes <= cols; col += kN * kLanes) {
    for (std::size_t i = 0; i < rows; i += kM)
      tile<kM, kN, kInit>(depth, a + i * row_step, row_step, depth_step, b + col, ldb, scale_at(i), c + i * ldc + col, ldc);
  }
  if constexpr (kN * kLanes > 16) {
    for (; col < cols; col += kLanes)
      for (std::size_t i = 0; i < rows; i += kM)
        tile<kM, 1, kInit>(depth, a + i * row_step, row_step, depth_step, b + col, ldb, scale_at(i), c + i * ldc + col, ldc);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four floats at `at`, and behind them, where the vector holds eight, the four at `at + apart`.
template <class Tag>
HWY_INLINE hn::Vec<Tag> load_pair(Tag d, const float* at, std::size_t apart) {
  if constexpr (hn::MaxLanes(Tag()) == 8) {
    const hn::Half<Tag> half;
    return hn::Combine(d, hn::LoadU(half, at + apart), hn::LoadU(half, at));
  } else {
    return hn::LoadU(d, at);
  }
}
#endif

// to[c,r] = from[r,c]; rows and cols multiples of 8.
HWY_NOINLINE void transpose(std::size_t rows, std::size_t cols, const float* HWY_RESTRICT from, std::size_t ld_from, float* HWY_RESTRICT to,
                            std::size_t ld_to) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c) to[c * ld_to + r] = from[r * ld_from + c];
#else
  const hn::CappedTag<float, 8> d;  // rows r..r+3 in the lower half, r+4..r+7 in the upper where there is one
  constexpr std::size_t kBlock = hn::MaxLanes(d);
  for (std::size_t r = 0; r < rows; r += kBlock) {
    for (std::size_t c = 0; c < cols; c += 4) {
      const float* at = from + r * ld_from + c;
      hn::Vec<decltype(d)> x[4];
      HWY_UNROLL(4)
      for (std::size_t i = 0; i < 4; ++i) x[i] = load_pair(d, at + i * ld_from, 4 * ld_from);
      const auto low02 = hn::InterleaveLower(d, x[0], x[2]), high02 = hn::InterleaveUpper(d, x[0], x[2]);
      const auto low13 = hn::InterleaveLower(d, x[1], x[3]), high13 = hn::InterleaveUpper(d, x[1], x[3]);
      hn::StoreU(hn::InterleaveLower(d, low02, low13), d, to + c * ld_to + r);
      hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, to + (c + 1) * ld_to + r);
      hn::StoreU(hn::InterleaveLower(d, high02, high13), d, to + (c + 2) * ld_to + r);
      hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, to + (c + 3) * ld_to + r);
    }
  }
#endif
}

// to[16,ld] = scale * from (n rows of hd at distance row), zero elsewhere.
HWY_INLINE void load_rows(std::size_t n, std::size_t hd, std::size_t ld, const float* HWY_RESTRICT from, std::size_t row, float scale,
                          float* HWY_RESTRICT to) {
  const D d;
  const V factor = hn::Set(d, scale);
  for (std::size_t i = 0; i < n; ++i) {
    const float* x = from + i * row;
    float* y = to + i * ld;
    std::size_t c = 0;
    for (; c + kLanes <= hd; c += kLanes) hn::Store(hn::Mul(factor, hn::LoadU(d, x + c)), d, y + c);
    for (; c < hd; ++c) y[c] = scale * x[c];
    for (; c < ld; ++c) y[c] = 0;
  }
  std::memset(to + n * ld, 0, (kKdaRows - n) * ld * sizeof(float));
}

// beta[16] of a chunk, zero after n.
HWY_INLINE void load_beta(std::size_t n, const float* from, std::size_t row, float* to) {
  for (std::size_t i = 0; i < kKdaRows; ++i) to[i] = i < n ? from[i * row] : 0.0f;
}

// to[i,0..hd) = (or += ) from[i,0..hd), n rows.
template <bool kAdd>
HWY_INLINE void store_rows(std::size_t n, std::size_t hd, const float* HWY_RESTRICT from, std::size_t ld, float* HWY_RESTRICT to,
                           std::size_t row) {
  const D d;
  for (std::size_t i = 0; i < n; ++i) {
    const float* x = from + i * ld;
    float* y = to + i * row;
    std::size_t c = 0;
    for (; c + kLanes <= hd; c += kLanes) {
      const V v = hn::Load(d, x + c);
      hn::StoreU(kAdd ? hn::Add(hn::LoadU(d, y + c), v) : v, d, y + c);
    }
    for (; c < hd; ++c) y[c] = kAdd ? y[c] + x[c] : x[c];
  }
}

// to[ld,ld] = from[hd,hd], zero elsewhere; from null: all zero.
HWY_INLINE void load_state(std::size_t hd, std::size_t ld, const float* from, float* to) {
  if (hd != ld || from == nullptr) std::memset(to, 0, ld * ld * sizeof(float));
  if (from == nullptr) return;
  for (std::size_t r = 0; r < hd; ++r) std::memcpy(to + r * ld, from + r * hd, hd * sizeof(float));
}

struct Decays {                  // [16,ld] each, total [ld]
  float *from_start, *to_end;    // exp(G), exp(G_C - G)
  float *from_first, *to_first;  // exp(G - G_0), exp(G_0 - G); both 1 when pairwise
  float* total;                  // exp(G_C)
};

// Returns whether the pair terms may be factored. g [16,ld].
HWY_NOINLINE bool decays(std::size_t ld, const float* HWY_RESTRICT g, const Decays& out) {
  const D d;
  float* HWY_RESTRICT h = out.from_first;  // G - G_0
  V span = hn::Zero(d);
  bool ordered = true;
  for (std::size_t c = 0; c < ld; c += kLanes) {
    V sum = hn::Zero(d);
    hn::Store(sum, d, h + c);
    for (std::size_t i = 1; i < kKdaRows; ++i) {
      sum = hn::Add(sum, hn::Load(d, g + i * ld + c));
      hn::Store(sum, d, h + i * ld + c);
      span = hn::Max(span, hn::Abs(sum));
    }
    ordered = ordered && hn::AllTrue(d, hn::Eq(sum, sum));  // false for NaN
  }
  if (ordered && hn::AllTrue(d, hn::Le(span, hn::Set(d, kKdaFactoredSpan)))) {
    for (std::size_t c = 0; c < ld; c += kLanes) {
      const V start = exp_nats(hn::Load(d, g + c));                      // exp(G_0)
      const V end = exp_nats(hn::Load(d, h + (kKdaRows - 1) * ld + c));  // exp(G_C - G_0)
      hn::Store(hn::Mul(start, end), d, out.total + c);
      for (std::size_t i = 0; i < kKdaRows; ++i) {
        const std::size_t at = i * ld + c;
        const V x = hn::Load(d, h + at);
        const V from_first = exp_nats(x), to_first = exp_nats(hn::Neg(x));
        hn::Store(from_first, d, out.from_first + at);
        hn::Store(to_first, d, out.to_first + at);
        hn::Store(hn::Mul(from_first, start), d, out.from_start + at);
        hn::Store(hn::Mul(to_first, end), d, out.to_end + at);
      }
    }
    return true;
  }
  const V one = hn::Set(d, 1.0f);
  for (std::size_t c = 0; c < ld; c += kLanes) {
    V sum = hn::Zero(d);
    for (std::size_t i = 0; i < kKdaRows; ++i) {
      sum = hn::Add(sum, hn::Load(d, g + i * ld + c));
      hn::Store(exp_nats(sum), d, out.from_start + i * ld + c);
      hn::Store(one, d, out.from_first + i * ld + c);
      hn::Store(one, d, out.to_first + i * ld + c);
    }
    hn::Store(exp_nats(sum), d, out.total + c);
    sum = hn::Zero(d);
    for (std::size_t i = kKdaRows; i-- > 0;) {
      hn::Store(exp_nats(sum), d, out.to_end + i * ld + c);
      sum = hn::Add(sum, hn::Load(d, g + i * ld + c));
    }
  }
  return false;
}

// to = x * y over [16,ld]
HWY_INLINE void multiply(std::size_t ld, const float* HWY_RESTRICT x, const float* HWY_RESTRICT y, float* HWY_RESTRICT to) {
  const D d;
  for (std::size_t i = 0; i < kKdaRows * ld; i += kLanes) hn::Store(hn::Mul(hn::Load(d, x + i), hn::Load(d, y + i)), d, to + i);
}

// Keeps row i's columns j < i + 1 (strict: j < i) of x[16,16], zeroes the rest: a select, since what is dropped may be infinite.
HWY_INLINE void lower_triangle(bool strict, float* x) {
  const D d;
  for (std::size_t i = 0; i < kKdaRows; ++i) {
    const std::size_t keep = strict ? i : i + 1;
    for (std::size_t c = 0; c < kKdaRows; c += kLanes) {
      float* at = x + i * kKdaRows + c;
      hn::Store(keep > c ? hn::IfThenElseZero(hn::FirstN(d, keep - c), hn::Load(d, at)) : hn::Zero(d), d, at);
    }
  }
}

// p, l [16,16] stacked, one pair at a time: the running sum of g between the two rows is the exponent.
HWY_NOINLINE void scores_pairwise(std::size_t ld, const float* q, const float* k, const float* g, float* p, float* l) {
  const D d;
  std::memset(p, 0, kKdaRows * kKdaRows * sizeof(float));
  std::memset(l, 0, kKdaRows * kKdaRows * sizeof(float));
  for (std::size_t j = 0; j < kKdaRows; ++j) {
    for (std::size_t c = 0; c < ld; c += kLanes) {
      const V kj = hn::Load(d, k + j * ld + c);
      V sum = hn::Zero(d);
      for (std::size_t i = j; i < kKdaRows; ++i) {
        if (i > j) sum = hn::Add(sum, hn::Load(d, g + i * ld + c));
        const V ke = hn::Mul(kj, exp_nats(sum));
        p[i * kKdaRows + j] += hn::GetLane(hn::SumOfLanes(d, hn::Mul(hn::Load(d, q + i * ld + c), ke)));
        if (i > j) l[i * kKdaRows + j] += hn::GetLane(hn::SumOfLanes(d, hn::Mul(hn::Load(d, k + i * ld + c), ke)));
      }
    }
  }
}

// The eight rows at `first` of (I + x) y = r in place, x unit lower triangular (upper: its transpose), r less the other rows' share.
template <bool kTransposed, std::size_t kN>
HWY_INLINE void solve_eight(const float* HWY_RESTRICT x, float* HWY_RESTRICT y, std::size_t ld) {
  const D d;
  V r[8][kN];
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < 8; ++i) {
    HWY_UNROLL(2)
    for (std::size_t c = 0; c < kN; ++c) r[i][c] = hn::Load(d, y + i * ld + c * kLanes);
  }
  HWY_UNROLL(8)
  for (std::size_t step = 0; step < 8; ++step) {
    HWY_UNROLL(8)
    for (std::size_t other = 1; other < 8; ++other) {
      if (step + other >= 8) continue;
      const std::size_t j = kTransposed ? 7 - step : step, i = kTransposed ? 7 - step - other : step + other;
      const V factor = hn::Set(d, kTransposed ? x[j * kKdaRows + i] : x[i * kKdaRows + j]);
      HWY_UNROLL(2)
      for (std::size_t c = 0; c < kN; ++c) r[i][c] = hn::NegMulAdd(factor, r[j][c], r[i][c]);
    }
  }
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < 8; ++i) {
    HWY_UNROLL(2)
    for (std::size_t c = 0; c < kN; ++c) hn::Store(r[i][c], d, y + i * ld + c * kLanes);
  }
}

// Solves (I + x) y = r (or with x^T) in place in y[16,ld]; minus_x [16,16] = -x, strictly lower.
template <bool kTransposed>
HWY_NOINLINE void solve(std::size_t ld, const float* x, const float* minus_x, float* y) {
  constexpr std::size_t kN = 1;
  const std::size_t first = kTransposed ? 8 : 0, second = 8 - first;
  for (std::size_t c = 0; c < ld; c += kN * kLanes) solve_eight<kTransposed, kN>(x + first * (kKdaRows + 1), y + first * ld + c, ld);
  if constexpr (kTransposed) {
    gemm<Init::add>(8, ld, 8, minus_x + 8 * kKdaRows, 1, kKdaRows, y + 8 * ld, ld, y, ld);
  } else {
    gemm<Init::add>(8, ld, 8, minus_x + 8 * kKdaRows, kKdaRows, 1, y, ld, y + 8 * ld, ld);
  }
  for (std::size_t c = 0; c < ld; c += kN * kLanes) solve_eight<kTransposed, kN>(x + second * (kKdaRows + 1), y + second * ld + c, ld);
}

// lower[i,j] = beta_i l[i,j] and its negative.
HWY_INLINE void scale_lower(const float* beta, const float* l, float* lower, float* minus_lower) {
  const D d;
  for (std::size_t i = 0; i < kKdaRows; ++i) {
    const V b = hn::Set(d, beta[i]);
    for (std::size_t c = 0; c < kKdaRows; c += kLanes) {
      const V x = hn::Mul(b, hn::Load(d, l + i * kKdaRows + c));
      hn::Store(x, d, lower + i * kKdaRows + c);
      hn::Store(hn::Neg(x), d, minus_lower + i * kKdaRows + c);
    }
  }
}

// What the state and the pair terms see of a chunk's keys and queries. q is scaled (forward) or not (backward).
struct Factors {
  float* hat;                  // [32,ld]: q exp(G), then k exp(G)
  float* k_end;                // [16,ld]: k exp(G_C - G)
  float* first;                // [32,ld]: q exp(G - G_0), then k exp(G - G_0)
  float *k_first, *k_first_t;  // [16,ld]: k exp(G_0 - G); [ld,16]
  float *p, *l;                // [16,16], l directly behind p
  float *lower, *minus_lower;  // [16,16]: beta_i l_ij and its negative
};

// Fills `f` and `e`; returns false for a chunk whose pair terms were formed pair by pair (then first, k_first, k_first_t are not filled).
HWY_INLINE bool chunk_factors(std::size_t ld, const float* q, const float* k, const float* g, const float* beta, const Decays& e,
                              const Factors& f) {
  const std::size_t r = kKdaRows * ld;
  const bool factored = decays(ld, g, e);
  multiply(ld, q, e.from_start, f.hat);
  multiply(ld, k, e.from_start, f.hat + r);
  multiply(ld, k, e.to_end, f.k_end);
  if (factored) {
    multiply(ld, q, e.from_first, f.first);
    multiply(ld, k, e.from_first, f.first + r);
    multiply(ld, k, e.to_first, f.k_first);
    transpose(kKdaRows, ld, f.k_first, ld, f.k_first_t, kKdaRows);
    gemm(2 * kKdaRows, kKdaRows, ld, f.first, ld, 1, f.k_first_t, kKdaRows, f.p, kKdaRows);
    lower_triangle(false, f.p);
    lower_triangle(true, f.l);
  } else {
    scores_pairwise(ld, q, k, g, f.p, f.l);
  }
  scale_lower(beta, f.l, f.lower, f.minus_lower);
  return factored;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#endif
