// The op table: every computation of the engine, one function pointer per op and direction.
//
// Columns: reference (plain scalar templates, f32 and f64, ops/reference), cpu (Highway + GEMM seam, f32, ops/cpu), later
// cuda beside them. All matrices are row-major and dense unless a leading dimension is named. Sizes may be 0.
// Every backward ACCUMULATES (+=) into its gradients; a null gradient pointer means "not wanted".
// Letters: N rows (= b*t positions), d width, H heads, hd head width, E experts, k rank.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "ops/gemm.h"
#include "ops/narrow.h"

namespace dormouse::ops {

// y[r,:] = g * x[r,:] * inv[r],  inv[r] = 1/sqrt(mean(x[r,:]^2) + eps).                            x, y [rows,d]; g [d]
// dx = inv*(g*dy - x*inv^2*mean(g*dy*x)),  dg += sum_r dy*x*inv
struct RmsNorm {
  std::int64_t rows = 0, d = 0;
  double eps = 0;
};

// Controller outputs -> gates. c [rows,width], width >= 3+E:
// gates [rows,3+E] = sigma(c0), min(sigma(c1), lam_max), sigma(c2), softmax(c3..c(2+E)).
// smooth = true: lam = lam_max*sigma(c1). The columns of c beyond 3+E are not read and get no gradient.
struct Gates {
  std::int64_t rows = 0, experts = 0, width = 0;
  double lam_max = 0;
  bool smooth = false;
};

// y = silu(x) per element, then per head x / sqrt(sum x^2 + eps) over head_dim.  x, y [rows*heads, head_dim]; inv [rows*heads]
struct HeadNorm {
  std::int64_t rows = 0, head_dim = 0;  // rows counts heads too
  double eps = 0;
};

// g[n,h,j] = g_min * sigma(exp(clamp(a_log[h],-10,20)) * (zeta[n,h,j] + bias[h,j]))     zeta, g [rows,H*hd]; a_log [H]; bias [H*hd]
struct Decay {
  std::int64_t rows = 0, heads = 0, head_dim = 0;
  double g_min = -5;
};

// y = h U, h = silu(x V^T); the wide h [rows,f] lives in tiles only.      x [rows,k], V [f,k], U [f,r], y [rows,r]
// backward, with dh = dy U^T, dp = dh silu'(x V^T): dx += dp V, dV += dp^T x, dU += h^T dy. compute: of all products.
struct Hidden {
  std::int64_t rows = 0, k = 0, f = 0, r = 0;
  Compute compute = Compute::f32;
};

// The gated delta recurrence. q,k,v,g,o [b,t,H,hd]; beta [b,t,H]; states [b,H,hd,hd] (key row, value column).
//   S <- exp(g) (rows) S;  u = beta (v - S^T k);  S += k u^T;  o = hd^-1/2 S^T q     (decay, write, read)
// Chunk form, chunks of kKdaChunk rows, the last may be short. chunk_states [b,H,ceil(t/16),hd,hd]: the state entering each
// chunk, written by the forward and read by the backward. Exponents are formed as differences (<= 0), never as quotients.
inline constexpr std::int64_t kKdaChunk = 16;
struct Kda {
  std::int64_t batch = 0, time = 0, heads = 0, head_dim = 0;
};

// y[r] = o[r]*inv[r] * w * sigma(z[r]) per head, inv = 1/sqrt(mean o^2 + eps).  o, z, y [rows,hd] (rows counts heads); w [hd]
struct GatedHeadNorm {
  std::int64_t rows = 0, head_dim = 0;
  double eps = 0;
};

// read[r,:] = gate[r] * val[r,:],  s = (key.u)*ik*iu/sqrt(d), ik = 1/sqrt(mean key^2+eps), iu likewise of u,
// gate = sigma(sign(s) sqrt(max(|s|,1e-6))).  key, val, u, read [rows,d]; saved [rows,4] = ik, iu, s, gate
struct EngramRead {
  std::int64_t rows = 0, d = 0;
  double eps = 0;
};

// h = u + rho*(wa*A + lam*M + (1-lam)*D + wf*F) per row, gates [rows,gate_width]: wa = gates[0], lam = gates[1], wf = gates[2].
// A, M may be null (arm off: its term is 0; M null means memory = D). All [rows,d]; rho [1].
struct Residual {
  std::int64_t rows = 0, d = 0, gate_width = 0;
};

// y[r,j] = x[r,j] * s[j] * p[r*p_stride]  (p null: 1).  x, y [rows,k]; s [k]
struct ScaleColumns {
  std::int64_t rows = 0, k = 0, p_stride = 0;
};

// nats[r] = logsumexp(x[r,:] V^T) - (x[r,:].V[target[r],:]).   x [rows,k], V [classes,k]; lse [rows] saved; logits live in tiles only.
// backward: dlogits = (softmax - onehot)*dnats[r];  dx += dlogits V;  dV += dlogits^T x
struct CrossEntropy {
  std::int64_t rows = 0, k = 0, classes = 0;
};

template <class T>
struct OpTable {
  std::string_view name;  // "reference", "cpu", "cpu-portable"

  void (*gemm)(const Gemm&, const T* a, const T* b, T* c);
  // body(begin, end) over [0, n), a range for each thread if `elements` of work are worth it. Inside, ops stay on their thread; where there
  // is one range alone, as for n = 1, they are split themselves. What a body throws is thrown when all are done.
  void (*split)(std::int64_t n, std::int64_t elements, const std::function<void(std::int64_t begin, std::int64_t end)>& body);

  // y = x W of several narrow matrices side by side (ops/narrow.h)
  void (*products)(std::int64_t rows, std::span<const Product<T>> list, Sweep sweep);

  // y[r,:] = table[index[r],:];  dtable[index[r],:] += dy[r,:]  (rows in order, so the sum has one order)
  void (*gather)(std::int64_t rows, std::int64_t d, const std::uint32_t* index, const T* table, T* y);
  void (*gather_backward)(std::int64_t rows, std::int64_t d, const std::uint32_t* index, const T* dy, T* dtable);

  // y = x + e (one row broadcast);  dx += dy, de += sum_r dy
  void (*add_row)(std::int64_t rows, std::int64_t d, const T* x, const T* e, T* y);
  void (*add_row_backward)(std::int64_t rows, std::int64_t d, const T* dy, T* dx, T* de);

  // y += alpha*x over n elements (y may be x)
  void (*axpy)(std::int64_t n, T alpha, const T* x, T* y);

  void (*rms_norm)(const RmsNorm&, const T* x, const T* g, T* y, T* inv);
  void (*rms_norm_backward)(const RmsNorm&, const T* x, const T* g, const T* inv, const T* dy, T* dx, T* dg);

  void (*gates)(const Gates&, const T* c, T* gates);
  void (*gates_backward)(const Gates&, const T* c, const T* gates, const T* dgates, T* dc);

  // y = silu(x) = x*sigma(x);  dx += dy*sigma(x)*(1 + x*(1-sigma(x)))
  void (*silu)(std::int64_t n, const T* x, T* y);
  void (*silu_backward)(std::int64_t n, const T* x, const T* dy, T* dx);
  // y = sigma(x);  dx += dy*y*(1-y)
  void (*sigmoid)(std::int64_t n, const T* x, T* y);
  void (*sigmoid_backward)(std::int64_t n, const T* y, const T* dy, T* dx);

  void (*hidden)(const Hidden&, const T* x, const T* v, const T* u, T* y);
  void (*hidden_backward)(const Hidden&, const T* x, const T* v, const T* u, const T* dy, T* dx, T* dv, T* du);

  void (*silu_head_norm)(const HeadNorm&, const T* x, T* y, T* inv);
  void (*silu_head_norm_backward)(const HeadNorm&, const T* x, const T* y, const T* inv, const T* dy, T* dx);

  void (*decay)(const Decay&, const T* zeta, const T* a_log, const T* bias, T* g);
  void (*decay_backward)(const Decay&, const T* zeta, const T* a_log, const T* bias, const T* g, const T* dg, T* dzeta, T* da_log,
                         T* dbias);

  // state0 null: zeros. state (final), chunk_states null: not wanted.
  void (*kda)(const Kda&, const T* q, const T* k, const T* v, const T* g, const T* beta, const T* state0, T* o, T* state, T* chunk_states);
  // dstate: gradient of the final state or null. dstate0 may be null.
  void (*kda_backward)(const Kda&, const T* q, const T* k, const T* v, const T* g, const T* beta, const T* chunk_states, const T* d_o,
                       const T* dstate, T* dq, T* dk, T* dv, T* dg, T* dbeta, T* dstate0);
  // The recurrence itself, position by position: state [b,H,hd,hd] is updated in place. Its bits do not depend on how a text is cut.
  void (*kda_step)(const Kda&, const T* q, const T* k, const T* v, const T* g, const T* beta, T* state, T* o);

  void (*gated_head_norm)(const GatedHeadNorm&, const T* o, const T* z, const T* w, T* y, T* inv);
  void (*gated_head_norm_backward)(const GatedHeadNorm&, const T* o, const T* z, const T* w, const T* inv, const T* dy, T* d_o, T* dz,
                                   T* dw);

  void (*engram_read)(const EngramRead&, const T* key, const T* val, const T* u, T* read, T* saved);
  void (*engram_read_backward)(const EngramRead&, const T* key, const T* val, const T* u, const T* saved, const T* dread, T* dkey, T* dval,
                               T* du);

  void (*residual)(const Residual&, const T* u, const T* rho, const T* gates, const T* a, const T* m, const T* d, const T* f, T* h);
  void (*residual_backward)(const Residual&, const T* rho, const T* gates, const T* a, const T* m, const T* d, const T* f, const T* dh,
                            T* du, T* drho, T* dgates, T* da, T* dm, T* dd, T* df);

  void (*scale_columns)(const ScaleColumns&, const T* x, const T* s, const T* p, T* y);
  void (*scale_columns_backward)(const ScaleColumns&, const T* x, const T* s, const T* p, const T* dy, T* dx, T* ds, T* dp);

  void (*cross_entropy)(const CrossEntropy&, const T* x, const T* v, const std::uint8_t* target, T* nats, T* lse);
  void (*cross_entropy_backward)(const CrossEntropy&, const T* x, const T* v, const std::uint8_t* target, const T* lse, const T* dnats,
                                 T* dx, T* dv);

  // p[r,:] = softmax(x[r,:]);  log_softmax likewise (evaluation, decoding; no backward)
  void (*log_softmax)(std::int64_t rows, std::int64_t d, const T* x, T* y);

  // Optimizers and retraction are built from these: sum of squares (f64 accumulation, fixed order) and the column / row
  // normalisation x[r,c] /= max(||.||_2, floor).
  double (*sum_squares)(std::int64_t n, const T* x);
  void (*normalize_columns)(std::int64_t rows, std::int64_t cols, T floor, T* x);
  void (*normalize_rows)(std::int64_t rows, std::int64_t cols, T floor, T* x);
  // AdamW over n elements: m, v moments; bias1 = 1-beta1^t, bias2 = 1-beta2^t; g is scaled by grad_scale first;
  // w <- (1 - lr*wd) w - lr * (m/bias1) / (sqrt(v/bias2) + eps)
  void (*adamw)(std::int64_t n, T lr, T beta1, T beta2, T eps, T weight_decay, T bias1, T bias2, T grad_scale, const T* g, T* m, T* v,
                T* w);
};

// The scalar column, for ever: what every other column is compared with, and the f64 engine of the gradient checks.
template <class T>
const OpTable<T>& reference_table();
extern template const OpTable<float>& reference_table<float>();
extern template const OpTable<double>& reference_table<double>();

// The CPU column at the level chosen by cpu_level(). `portable` forces the own GEMM instead of oneDNN (decode, builds
// without oneDNN): there a row's bits do not depend on how many rows stand beside it.
const OpTable<float>& cpu_table(bool portable = false);

}  // namespace dormouse::ops
