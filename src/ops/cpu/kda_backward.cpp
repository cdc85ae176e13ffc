// Backward of the gated delta recurrence. Chunks last to first; everything but the entering states S is recomputed.
//
// Notation of kda-inl.h, with dO scaled by hd^-1/2, Y = v - k^ S, D the gradient of the state leaving the chunk:
//   dp = tril(dO N^T),  dN = p^T dO + k~ D,  dR = (I + B l)^-T dN,  dl = -stril(B dR N^T)
//   dv = B dR,  dbeta_i = dR_i.Y_i - sum_j (dR N^T)_ij l_ij,  D <- exp(G_C) D + q^^T dO - k^^T (B dR)
//   queries  dq = (dO S^T) exp(G) + sum_j dp_ij k_j E_ij
//   keys, as row  (-(B dR) S^T) exp(G) + sum_j dl_ij k_j E_ij;  as column  (N D^T) exp(G_C - G) + sum_i (dp_ij q_i + dl_ij k_i) E_ij
//   dg_t = exp(G_C) rowsum(S D) + sum_{j<t} k_j (N D^T)_j exp(G_C - G_j) + sum_{i>=t} (q dq + k (row - column))_i  without the
//   leaving state's columns
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kda_backward.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/cpu/kda-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dormouse::ops::cpu {
namespace HWY_NAMESPACE {
namespace {

// rows [32,ld] and columns [16,ld] of the pair gradients from weights [32,16] (dp, then dl, both strict), one pair at a time.
HWY_NOINLINE void pair_gradients_pairwise(std::size_t ld, const float* q, const float* k, const float* g, const float* weights, float* rows,
                                          float* columns) {
  const D d;
  const std::size_t r = kKdaRows * ld;
  std::memset(rows, 0, 2 * r * sizeof(float));
  for (std::size_t j = 0; j < kKdaRows; ++j) {
    for (std::size_t c = 0; c < ld; c += kLanes) {
      const V kj = hn::Load(d, k + j * ld + c);
      V sum = hn::Zero(d), column = hn::Zero(d);
      for (std::size_t i = j + 1; i < kKdaRows; ++i) {
        const std::size_t at = i * ld + c;
        sum = hn::Add(sum, hn::Load(d, g + at));
        const V e = exp_nats(sum), ke = hn::Mul(kj, e);
        const V dp = hn::Set(d, weights[i * kKdaRows + j]), dl = hn::Set(d, weights[(kKdaRows + i) * kKdaRows + j]);
        hn::Store(hn::MulAdd(dp, ke, hn::Load(d, rows + at)), d, rows + at);
        hn::Store(hn::MulAdd(dl, ke, hn::Load(d, rows + r + at)), d, rows + r + at);
        column = hn::MulAdd(e, hn::MulAdd(dp, hn::Load(d, q + at), hn::Mul(dl, hn::Load(d, k + at))), column);
      }
      hn::Store(column, d, columns + j * ld + c);
    }
  }
}

HWY_INLINE void pair_gradients(std::size_t ld, const float* weights, const float* first, const float* k_first, float* rows,
                               float* columns) {
  const std::size_t half = 8 * kKdaRows;  // the upper eight rows of either triangle see the first eight columns only
  gemm(8, ld, 8, weights, kKdaRows, 1, k_first, ld, rows, ld);
  gemm(8, ld, kKdaRows, weights + half, kKdaRows, 1, k_first, ld, rows + 8 * ld, ld);
  gemm(8, ld, 8, weights + 2 * half, kKdaRows, 1, k_first, ld, rows + 16 * ld, ld);
  gemm(8, ld, kKdaRows, weights + 3 * half, kKdaRows, 1, k_first, ld, rows + 24 * ld, ld);
  gemm(kKdaRows, ld, 2 * kKdaRows, weights, 1, kKdaRows, first, ld, columns, ld);
}

// end[d] = total[d] * sum_v s[d,v] grad[d,v]
HWY_NOINLINE void end_gradient(std::size_t ld, const float* HWY_RESTRICT s, const float* HWY_RESTRICT grad, const float* HWY_RESTRICT total,
                               float* HWY_RESTRICT end) {
  const D d;
  for (std::size_t r = 0; r < ld; ++r) {
    V sum = hn::Zero(d);
    for (std::size_t c = r * ld; c < (r + 1) * ld; c += kLanes) sum = hn::MulAdd(hn::Load(d, s + c), hn::Load(d, grad + c), sum);
    end[r] = total[r] * hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// The last step of a chunk: in xs [32,ld] = (dO S^T, -(B dR) S^T), n_d [16,ld] = N D^T, rows and columns the pair gradients of the
// strict triangles, diagonal[i] = dp_ii; out dq over xs, dk over xs + 16 ld, dg over columns.
// dg_t is summed so that nothing of order 1 cancels when exp(g) is small: the pairs i = j take no part, and a key's share of the
// leaving state enters as the sum over the rows before t, not as all rows less those from t on.
HWY_NOINLINE void combine(std::size_t ld, const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, const Decays& e,
                          const float* HWY_RESTRICT n_d, const float* HWY_RESTRICT rows, const float* HWY_RESTRICT diagonal,
                          const float* HWY_RESTRICT end, float* HWY_RESTRICT xs, float* HWY_RESTRICT columns) {
  const D d;
  const std::size_t r = kKdaRows * ld;
  for (std::size_t c = 0; c < ld; c += kLanes) {
    V leaving[kKdaRows], before[kKdaRows];  // a key's gradient through the leaving state; end + sum_{j<i} k_j leaving_j
    V sum = hn::Load(d, end + c);
    for (std::size_t i = 0; i < kKdaRows; ++i) {
      const std::size_t at = i * ld + c;
      leaving[i] = hn::Mul(hn::Load(d, n_d + at), hn::Load(d, e.to_end + at));
      before[i] = sum;
      sum = hn::MulAdd(hn::Load(d, k + at), leaving[i], sum);
    }
    V run = hn::Zero(d);
    for (std::size_t i = kKdaRows; i-- > 0;) {
      const std::size_t at = i * ld + c;
      const V qi = hn::Load(d, q + at), ki = hn::Load(d, k + at), diag = hn::Set(d, diagonal[i]);
      const V start = hn::Load(d, e.from_start + at), from_first = hn::Load(d, e.from_first + at);
      const V dq = hn::MulAdd(hn::Load(d, xs + at), start, hn::Mul(hn::Load(d, rows + at), from_first));
      const V row = hn::MulAdd(hn::Load(d, xs + r + at), start, hn::Mul(hn::Load(d, rows + r + at), from_first));
      const V column = hn::Mul(hn::Load(d, columns + at), hn::Load(d, e.to_first + at));
      run = hn::Add(run, hn::MulAdd(qi, dq, hn::Mul(ki, hn::Sub(row, column))));
      hn::Store(hn::MulAdd(diag, ki, dq), d, xs + at);
      hn::Store(hn::MulAdd(diag, qi, hn::Add(hn::Add(row, column), leaving[i])), d, xs + r + at);
      hn::Store(hn::Add(run, before[i]), d, columns + at);
    }
  }
}

}  // namespace

// All chunks of one unit. Returns the number of pairwise chunks.
std::size_t backward_unit(const KdaUnit& u, const KdaBackward& io, float* scratch) {
  const D d;
  const std::size_t hd = u.hd, ld = u.ld, r = kKdaRows * ld, pairs = kKdaRows * kKdaRows;
  KdaCarver carve(scratch);
  float *s = carve.take(ld * ld), *s_t = carve.take(ld * ld), *grad = carve.take(ld * ld);
  float *q = carve.take(r), *k = carve.take(r), *v = carve.take(r), *g = carve.take(r), *beta = carve.take(kKdaRows);
  float *out = carve.take(2 * r), *residual = carve.take(r), *fresh = carve.take(r), *fresh_t = carve.take(r), *dn = carve.take(r);
  float *xs = carve.take(2 * r), *n_d_t = carve.take(r), *n_d = carve.take(r), *rows = carve.take(2 * r), *columns = carve.take(r);
  float *weights = carve.take(2 * pairs), *end = carve.take(ld), *diagonal = carve.take(kKdaRows);
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
  load_state(hd, ld, io.dstate == nullptr ? nullptr : io.dstate + u.state, grad);
  for (std::size_t chunk = u.chunks; chunk-- > 0;) {
    const std::size_t n = u.rows_of(chunk), x = u.x + chunk * kKdaRows * u.row, bx = u.beta + chunk * kKdaRows * u.beta_row;
    load_rows(n, hd, ld, io.q + x, u.row, 1, q);
    load_rows(n, hd, ld, io.k + x, u.row, 1, k);
    load_rows(n, hd, ld, io.v + x, u.row, 1, v);
    load_rows(n, hd, ld, io.g + x, u.row, 1, g);
    load_rows(n, hd, ld, io.d_o + x, u.row, u.scale, out);
    load_beta(n, io.beta + bx, u.beta_row, beta);
    load_state(hd, ld, io.chunk_states + u.chunk_state + chunk * hd * hd, s);
    const bool factored = chunk_factors(ld, q, k, g, beta, e, f);
    if (!factored) ++pairwise;

    gemm(kKdaRows, ld, ld, f.hat + r, ld, 1, s, ld, residual, ld);
    for (std::size_t i = 0; i < kKdaRows; ++i) {
      const V b = hn::Set(d, beta[i]);
      for (std::size_t c = i * ld; c < (i + 1) * ld; c += kLanes) {
        const V y = hn::Sub(hn::Load(d, v + c), hn::Load(d, residual + c));
        hn::Store(y, d, residual + c);
        hn::Store(hn::Mul(b, y), d, fresh + c);
      }
    }
    solve<false>(ld, f.lower, f.minus_lower, fresh);
    transpose(kKdaRows, ld, fresh, ld, fresh_t, kKdaRows);

    gemm(kKdaRows, kKdaRows, ld, out, ld, 1, fresh_t, kKdaRows, weights, kKdaRows);  // dp
    for (std::size_t i = 0; i < kKdaRows; ++i) diagonal[i] = weights[i * (kKdaRows + 1)];
    lower_triangle(true, weights);
    gemm(kKdaRows, ld, ld, f.k_end, ld, 1, grad, ld, dn, ld);
    gemm<Init::add>(8, ld, kKdaRows, f.p, 1, kKdaRows, out, ld, dn, ld);
    gemm<Init::add>(8, ld, 8, f.p + 8 * kKdaRows + 8, 1, kKdaRows, out + 8 * ld, ld, dn + 8 * ld, ld);
    solve<true>(ld, f.lower, f.minus_lower, dn);
    float* dl = weights + pairs;
    gemm(kKdaRows, kKdaRows, ld, dn, ld, 1, fresh_t, kKdaRows, dl, kKdaRows);
    lower_triangle(true, dl);
    for (std::size_t i = 0; i < kKdaRows; ++i) {
      const V b = hn::Set(d, -beta[i]);
      V sum = hn::Zero(d);
      for (std::size_t c = i * kKdaRows; c < (i + 1) * kKdaRows; c += kLanes) {
        const V w = hn::Load(d, dl + c);
        sum = hn::NegMulAdd(w, hn::Load(d, f.l + c), sum);
        hn::Store(hn::Mul(b, w), d, dl + c);
      }
      for (std::size_t c = i * ld; c < (i + 1) * ld; c += kLanes) {
        const V w = hn::Load(d, dn + c);
        sum = hn::MulAdd(w, hn::Load(d, residual + c), sum);
        const V minus = hn::Mul(b, w);
        hn::Store(minus, d, out + r + c);
        hn::Store(hn::Neg(minus), d, dn + c);
      }
      if (io.dbeta != nullptr && i < n) io.dbeta[bx + i * u.beta_row] += hn::GetLane(hn::SumOfLanes(d, sum));
    }
    if (io.dv != nullptr) store_rows<true>(n, hd, dn, ld, io.dv + x, u.row);

    transpose(ld, ld, s, ld, s_t, ld);
    gemm(2 * kKdaRows, ld, ld, out, ld, 1, s_t, ld, xs, ld);
    gemm(ld, kKdaRows, ld, grad, ld, 1, fresh_t, kKdaRows, n_d_t, kKdaRows);
    transpose(ld, kKdaRows, n_d_t, kKdaRows, n_d, ld);
    end_gradient(ld, s, grad, e.total, end);
    gemm<Init::scaled>(ld, ld, 2 * kKdaRows, f.hat, 1, ld, out, ld, grad, ld, e.total);

    if (factored) {
      pair_gradients(ld, weights, f.first, f.k_first, rows, columns);
    } else {
      pair_gradients_pairwise(ld, q, k, g, weights, rows, columns);
    }
    combine(ld, q, k, e, n_d, rows, diagonal, end, xs, columns);
    if (io.dq != nullptr) store_rows<true>(n, hd, xs, ld, io.dq + x, u.row);
    if (io.dk != nullptr) store_rows<true>(n, hd, xs + r, ld, io.dk + x, u.row);
    if (io.dg != nullptr) store_rows<true>(n, hd, columns, ld, io.dg + x, u.row);
  }
  if (io.dstate0 != nullptr) store_rows<true>(hd, hd, grad, ld, io.dstate0 + u.state, hd);
  return pairwise;
}

}  // namespace HWY_NAMESPACE
}  // namespace dormouse::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dormouse::ops::cpu {
namespace {

HWY_EXPORT(backward_unit);

}  // namespace

void kda_backward(const Kda& p, const float* q, const float* k, const float* v, const float* g, const float* beta,
                  const float* chunk_states, const float* d_o, const float* dstate, float* dq, float* dk, float* dv, float* dg,
                  float* dbeta, float* dstate0) {
  const auto ld = static_cast<std::size_t>((p.head_dim + 15) / 16 * 16);
  const std::size_t floats = 3 * ld * ld + 30 * kKdaRows * ld + 8 * kKdaRows * kKdaRows + 1024;
  const KdaBackward io{q, k, v, g, beta, chunk_states, d_o, dstate, dq, dk, dv, dg, dbeta, dstate0};
  each_kda_unit(p, io, HWY_DYNAMIC_DISPATCH(backward_unit), floats);
}

}  // namespace dormouse::ops::cpu
#endif
