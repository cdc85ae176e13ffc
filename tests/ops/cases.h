// Every op of the table, listed once.
#pragma once

#include <algorithm>
#include <cmath>

#include "plan.h"

namespace dormouse::ops::cases {

using std::int64_t;

// Tolerances: f32 rounding of about sqrt(terms) * 6e-8, with room for the polynomial exp of the vector columns (a few ulp).
inline constexpr double kExact = 3e-7;  // a handful of roundings
inline constexpr double kSum = 4e-6;    // sums of up to a thousand terms
inline constexpr double kNonlinear = 4e-6;
inline constexpr double kRecurrence = 4e-5;

inline Case gemm_case(bool transpose_a, bool transpose_b, bool accumulate, Compute compute, int64_t k, int64_t pad) {
  std::string name = std::string("gemm_") + (transpose_a ? "t" : "n") + (transpose_b ? "t" : "n") + "_k" + std::to_string(k) +
                     (accumulate ? "_accumulate" : "") + (compute == Compute::bf16 ? "_bf16" : "") + (pad > 0 ? "_strided" : "");
  Case one{
      std::move(name), kSum, [=](Draw& draw, int64_t m, int64_t n) {
        Gemm g{
            .m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = transpose_b, .accumulate = accumulate, .compute = compute};
        g.lda = (transpose_a ? m : k) + pad;
        g.ldb = (transpose_b ? k : n) + pad;
        g.ldc = n + pad;
        const double scale = std::sqrt(static_cast<double>(k)) * draw.magnitude() * draw.magnitude();
        Plan plan;
        plan.in("a", draw.values((transpose_a ? k : m) * g.lda)).in("b", draw.values((transpose_b ? n : k) * g.ldb));
        // inout: the padding beyond n must come back untouched.
        plan.inout("c", draw.normal(m * g.ldc), g.ldc, scale);
        return plan.run([g](const auto& t, const auto& b) { t.gemm(g, b[0], b[1], b[2]); });
      }};
  one.compute = compute;
  return one;
}

inline void add_gemm(std::vector<Case>& cases) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      cases.push_back(gemm_case(ta, tb, ta != tb, Compute::f32, 37, 0));
      cases.push_back(gemm_case(ta, tb, ta == tb, Compute::f32, 300, 3));
      cases.push_back(gemm_case(ta, tb, ta == tb, Compute::bf16, 70, 0));
    }
  }
  cases.push_back(gemm_case(false, false, false, Compute::f32, 1, 0));
  cases.push_back(gemm_case(false, false, false, Compute::f32, 0, 0));
  cases.push_back(gemm_case(false, true, true, Compute::f32, 0, 2));
}

inline void add_elementwise(std::vector<Case>& cases) {
  cases.push_back({"gather", kSum, [](Draw& draw, int64_t rows, int64_t d) {
                     constexpr int64_t kTable = 9;
                     Plan plan;
                     plan.in("table", draw.values(kTable * d)).out("y", rows * d, d).in("dy", draw.values(rows * d));
                     plan.gradient("dtable", draw.normal(kTable * d), d, draw.magnitude() * std::sqrt(static_cast<double>(rows)));
                     return plan.run([rows, d, index = draw.indices(rows, kTable)](const auto& t, const auto& b) {
                       t.gather(rows, d, index.data(), b[0], b[1]);
                       t.gather_backward(rows, d, index.data(), b[2], b[3]);
                     });
                   }});
  cases.push_back({"add_row", kSum, [](Draw& draw, int64_t rows, int64_t d) {
                     Plan plan;
                     plan.in("x", draw.values(rows * d)).in("e", draw.values(d)).out("y", rows * d, d, draw.magnitude());
                     plan.in("dy", draw.values(rows * d)).gradient("dx", draw.normal(rows * d), d);
                     plan.gradient("de", draw.normal(d), d, draw.magnitude() * std::sqrt(static_cast<double>(rows)));
                     return plan.run([rows, d](const auto& t, const auto& b) {
                       t.add_row(rows, d, b[0], b[1], b[2]);
                       t.add_row_backward(rows, d, b[3], b[4], b[5]);
                     });
                   }});
  cases.push_back({"axpy", kExact, [](Draw& draw, int64_t rows, int64_t d) {
                     Plan plan;
                     plan.in("x", draw.values(rows * d)).inout("y", draw.values(rows * d), d, draw.magnitude());
                     return plan.run([n = rows * d](const auto& t, const auto& b) { t.axpy(n, -0.375, b[0], b[1]); });
                   }});
  cases.push_back({"silu", kNonlinear, [](Draw& draw, int64_t rows, int64_t d) {
                     Plan plan;
                     plan.in("x", draw.values(rows * d)).out("y", rows * d, d).in("dy", draw.values(rows * d));
                     plan.gradient("dx", draw.normal(rows * d), d);
                     return plan.run([n = rows * d](const auto& t, const auto& b) {
                       t.silu(n, b[0], b[1]);
                       t.silu_backward(n, b[0], b[2], b[3]);
                     });
                   }});
  cases.push_back({"sigmoid", kNonlinear, [](Draw& draw, int64_t rows, int64_t d) {
                     Plan plan;
                     plan.in("x", draw.values(rows * d)).out("y", rows * d, d).in("dy", draw.values(rows * d));
                     plan.gradient("dx", draw.normal(rows * d), d);
                     return plan.run([n = rows * d](const auto& t, const auto& b) {
                       t.sigmoid(n, b[0], b[1]);
                       t.sigmoid_backward(n, b[1], b[2], b[3]);
                     });
                   }});
  for (const bool gated : {false, true}) {
    cases.push_back({gated ? "scale_columns_gated" : "scale_columns", kSum, [gated](Draw& draw, int64_t rows, int64_t k) {
                       const ScaleColumns shape{.rows = rows, .k = k, .p_stride = 5};
                       const double size = std::pow(draw.magnitude(), 2);
                       Plan plan;
                       plan.in("x", draw.values(rows * k)).in("s", draw.normal(k)).in("p", draw.uniform(rows * 5, 0, 1));
                       plan.out("y", rows * k, k).in("dy", draw.values(rows * k)).gradient("dx", draw.normal(rows * k), k);
                       plan.gradient("ds", draw.normal(k), k, size * std::sqrt(static_cast<double>(rows)));
                       plan.gradient("dp", draw.normal(rows * 5), 5, size * std::sqrt(static_cast<double>(k)));
                       return plan.run([shape, gated](const auto& t, const auto& b) {
                         auto* p = gated ? b[2] + 2 : nullptr;
                         auto* dp = gated && b[7] != nullptr ? b[7] + 2 : nullptr;
                         t.scale_columns(shape, b[0], b[1], p, b[3]);
                         t.scale_columns_backward(shape, b[0], b[1], p, b[4], b[5], b[6], dp);
                       });
                     }});
  }
}

// rows x cols = rows of x x width of the hidden layer.
inline void add_hidden(std::vector<Case>& cases) {
  for (const Compute compute : {Compute::f32, Compute::bf16}) {
    cases.push_back({compute == Compute::bf16 ? "hidden_bf16" : "hidden", compute == Compute::bf16 ? 4e-3 : 2e-5,
                     [compute](Draw& draw, int64_t rows, int64_t f) {
                       const Hidden shape{.rows = rows, .k = 5, .f = f, .r = 7, .compute = compute};
                       const double size = std::max(1.0, draw.magnitude());
                       const double tall = std::sqrt(static_cast<double>(rows)), wide = std::sqrt(static_cast<double>(f));
                       Plan plan;
                       plan.in("x", draw.values(rows * 5)).in("v", draw.normal(f * 5)).in("u", draw.normal(f * 7));
                       plan.out("y", rows * 7, 7, 3 * size * wide).in("dy", draw.normal(rows * 7));
                       plan.gradient("dx", draw.normal(rows * 5), 5, 8 * wide).gradient("dv", draw.normal(f * 5), 5, 8 * size * tall);
                       plan.gradient("du", draw.normal(f * 7), 7, 8 * size * tall);
                       return plan.run([shape](const auto& t, const auto& b) {
                         t.hidden(shape, b[0], b[1], b[2], b[3]);
                         t.hidden_backward(shape, b[0], b[1], b[2], b[4], b[5], b[6], b[7]);
                       });
                     }});
    cases.back().compute = compute;
  }
}

inline void add_norms(std::vector<Case>& cases) {
  cases.push_back({"rms_norm", kSum, [](Draw& draw, int64_t rows, int64_t d) {
                     const RmsNorm shape{.rows = rows, .d = d, .eps = 1e-3};
                     Plan plan;
                     plan.in("x", draw.values(rows * d)).in("g", draw.normal(d)).out("y", rows * d, d).out("inv", rows, 1);
                     plan.in("dy", draw.normal(rows * d)).gradient("dx", draw.normal(rows * d), d);
                     plan.gradient("dg", draw.normal(d), d, std::sqrt(static_cast<double>(rows)));
                     return plan.run([shape](const auto& t, const auto& b) {
                       t.rms_norm(shape, b[0], b[1], b[2], b[3]);
                       t.rms_norm_backward(shape, b[0], b[1], b[3], b[4], b[5], b[6]);
                     });
                   }});
  cases.push_back({"silu_head_norm", 2e-5, [](Draw& draw, int64_t rows, int64_t hd) {
                     const HeadNorm shape{.rows = rows, .head_dim = hd, .eps = 1e-6};
                     Plan plan;
                     plan.in("x", draw.values(rows * hd)).out("y", rows * hd, hd).out("inv", rows, 1);
                     plan.in("dy", draw.normal(rows * hd)).gradient("dx", draw.normal(rows * hd), hd, 1);
                     return plan.run([shape](const auto& t, const auto& b) {
                       t.silu_head_norm(shape, b[0], b[1], b[2]);
                       t.silu_head_norm_backward(shape, b[0], b[1], b[2], b[3], b[4]);
                     });
                   }});
  cases.push_back({"gated_head_norm", kSum, [](Draw& draw, int64_t rows, int64_t hd) {
                     const GatedHeadNorm shape{.rows = rows, .head_dim = hd, .eps = 1e-5};
                     Plan plan;
                     plan.in("o", draw.values(rows * hd)).in("z", draw.values(rows * hd)).in("w", draw.normal(hd));
                     plan.out("y", rows * hd, hd).out("inv", rows, 1).in("dy", draw.normal(rows * hd));
                     plan.gradient("d_o", draw.normal(rows * hd), hd).gradient("dz", draw.normal(rows * hd), hd);
                     plan.gradient("dw", draw.normal(hd), hd, std::sqrt(static_cast<double>(rows)));
                     return plan.run([shape](const auto& t, const auto& b) {
                       t.gated_head_norm(shape, b[0], b[1], b[2], b[3], b[4]);
                       t.gated_head_norm_backward(shape, b[0], b[1], b[2], b[4], b[5], b[6], b[7], b[8]);
                     });
                   }});
  cases.push_back({"log_softmax", kNonlinear, [](Draw& draw, int64_t rows, int64_t d) {
                     Plan plan;
                     plan.in("x", draw.values(rows * d)).out("y", rows * d, d, 2 * draw.magnitude());
                     return plan.run([rows, d](const auto& t, const auto& b) { t.log_softmax(rows, d, b[0], b[1]); });
                   }});
}

inline void add_loop_block(std::vector<Case>& cases) {
  for (const bool smooth : {false, true}) {
    cases.push_back({smooth ? "gates_smooth" : "gates_clip", kNonlinear, [smooth](Draw& draw, int64_t rows, int64_t experts) {
                       const int64_t width = 3 + experts + 2, out = 3 + experts;
                       const Gates shape{.rows = rows, .experts = experts, .width = width, .lam_max = 0.5, .smooth = smooth};
                       // At lam_max exactly (inputs of 0) the clip's gradient is a matter of rounding: keep off it.
                       std::vector<double> c = draw.values(rows * width);
                       if (!smooth) {
                         for (int64_t r = 0; r < rows; ++r) {
                           double& memory = c[static_cast<std::size_t>(r * width + 1)];
                           if (std::abs(memory) < 1e-3) memory = r % 2 == 0 ? 0.25 : -0.25;
                         }
                       }
                       Plan plan;
                       plan.in("c", std::move(c)).out("gates", rows * out, out).in("dgates", draw.normal(rows * out));
                       plan.gradient("dc", draw.normal(rows * width), width);
                       return plan.run([shape](const auto& t, const auto& b) {
                         t.gates(shape, b[0], b[1]);
                         t.gates_backward(shape, b[0], b[1], b[2], b[3]);
                       });
                     }});
  }
  cases.push_back({"engram_read", 2e-5, [](Draw& draw, int64_t rows, int64_t d) {
                     const EngramRead shape{.rows = rows, .d = d, .eps = 1e-5};
                     // key . u clearly positive or negative: the root's slope is unbounded near 0 (4e-5 d is far above its floor).
                     // Denormal key and u would round s to 0, where the signed root jumps.
                     const bool jumps = draw.kind() == Kind::denormal;
                     std::vector<double> key = jumps ? draw.normal(rows * d) : draw.values(rows * d);
                     std::vector<double> u = jumps ? draw.normal(rows * d) : draw.values(rows * d);
                     for (std::size_t i = 0; i < u.size(); ++i) {
                       const double sign = (static_cast<int64_t>(i) / d) % 2 == 0 ? 1 : -1;
                       u[i] = as_f32(u[i] + sign * key[i]);
                     }
                     Plan plan;
                     plan.in("key", std::move(key)).in("val", jumps ? draw.values(rows * d) : draw.normal(rows * d)).in("u", std::move(u));
                     plan.out("read", rows * d, d).out("saved", rows * 4, 1, 1e-2).in("dread", draw.normal(rows * d));
                     const double sum = std::sqrt(static_cast<double>(d));
                     plan.gradient("dkey", draw.normal(rows * d), d, sum).gradient("dval", draw.normal(rows * d), d);
                     plan.gradient("du", draw.normal(rows * d), d, sum);
                     return plan.run([shape](const auto& t, const auto& b) {
                       t.engram_read(shape, b[0], b[1], b[2], b[3], b[4]);
                       t.engram_read_backward(shape, b[0], b[1], b[2], b[4], b[5], b[6], b[7], b[8]);
                     });
                   }});
  for (const int arms : {0, 1, 2, 3}) {
    const bool attention = (arms & 1) != 0, memory = (arms & 2) != 0;
    const std::string name = std::string("residual") + (attention ? "_attention" : "") + (memory ? "_memory" : "");
    cases.push_back(
        {name, kSum, [=](Draw& draw, int64_t rows, int64_t d) {
           const int64_t width = 6, n = rows * d;
           const Residual shape{.rows = rows, .d = d, .gate_width = width};
           const double size = draw.magnitude(), sum = size * std::sqrt(static_cast<double>(d));
           Plan plan;
           plan.in("u", draw.values(n)).in("rho", {0.75}).in("gates", draw.uniform(rows * width, 0, 1));
           for (const char* term : {"a", "m", "d", "f"}) plan.in(term, draw.values(n));
           plan.out("h", n, d, size).in("dh", draw.normal(n));
           plan.gradient("du", draw.normal(n), d).gradient("drho", draw.normal(1), 1, sum * std::sqrt(static_cast<double>(rows)));
           plan.gradient("dgates", draw.normal(rows * width), width, sum);
           for (const char* term : {"da", "dm", "dd", "df"}) plan.gradient(term, draw.normal(n), d);
           return plan.run([=](const auto& t, const auto& b) {
             auto* a = attention ? b[3] : nullptr;
             auto* m = memory ? b[4] : nullptr;
             auto* da = attention ? b[12] : nullptr;
             auto* dm = memory ? b[13] : nullptr;
             t.residual(shape, b[0], b[1], b[2], a, m, b[5], b[6], b[7]);
             t.residual_backward(shape, b[1], b[2], a, m, b[5], b[6], b[8], b[9], b[10], b[11], da, dm, b[14], b[15]);
           });
         }});
  }
}

inline Kda kda_shape(int64_t rows, int64_t cols) {
  return {.batch = 2, .time = rows, .heads = 2, .head_dim = std::min<int64_t>(cols, 128)};
}

inline void add_attention(std::vector<Case>& cases) {
  cases.push_back({"decay", kNonlinear, [](Draw& draw, int64_t rows, int64_t hd) {
                     const Decay shape{.rows = rows, .heads = 3, .head_dim = hd, .g_min = -5};
                     const int64_t n = rows * 3 * hd;
                     const double sum = std::sqrt(static_cast<double>(rows * hd)) * std::max(1.0, draw.magnitude());
                     Plan plan;
                     plan.in("zeta", draw.values(n)).in("a_log", {0.25, -0.5, -12.0}).in("bias", draw.normal(3 * hd));
                     plan.out("g", n, hd).in("dg", draw.normal(n)).gradient("dzeta", draw.normal(n), hd);
                     plan.gradient("da_log", draw.normal(3), 3, sum).gradient("dbias", draw.normal(3 * hd), hd, sum);
                     return plan.run([shape](const auto& t, const auto& b) {
                       t.decay(shape, b[0], b[1], b[2], b[3]);
                       t.decay_backward(shape, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
                     });
                   }});
  for (const bool carried : {false, true}) {
    cases.push_back(
        {carried ? "kda_carried_state" : "kda", kRecurrence, [carried](Draw& draw, int64_t time, int64_t cols) {
           const Kda p = kda_shape(time, cols);
           const int64_t hd = p.head_dim, units = p.batch * p.heads, n = units * time * hd, states = units * hd * hd;
           const int64_t chunks = units * ((time + kKdaChunk - 1) / kKdaChunk) * hd * hd;
           const double size = std::max(draw.magnitude(), carried ? 1.0 : 0.0), sum = size * std::sqrt(static_cast<double>(hd));
           Plan plan;
           plan.in("q", draw.unit_rows(units * time, hd)).in("k", draw.unit_rows(units * time, hd)).in("v", draw.values(n));
           plan.in("g", draw.uniform(n, -5, -1e-4)).in("beta", draw.uniform(units * time, 0, 1)).in("state0", draw.normal(states));
           plan.out("o", n, hd, size).out("state", states, hd, size).out("chunk_states", chunks, hd, size);
           plan.in("d_o", draw.normal(n)).in("dstate", draw.normal(states));
           for (const char* name : {"dq", "dk", "dv", "dg"}) plan.gradient(name, draw.normal(n), hd, sum);
           plan.gradient("dbeta", draw.normal(units * time), 1, sum).gradient("dstate0", draw.normal(states), hd, 1);
           return plan.run([p, carried](const auto& t, const auto& b) {
             t.kda(p, b[0], b[1], b[2], b[3], b[4], carried ? b[5] : nullptr, b[6], b[7], b[8]);
             t.kda_backward(p, b[0], b[1], b[2], b[3], b[4], b[8], b[9], carried ? b[10] : nullptr, b[11], b[12], b[13], b[14], b[15],
                            b[16]);
           });
         }});
  }
  cases.push_back({"kda_outputs_only", kRecurrence, [](Draw& draw, int64_t time, int64_t cols) {
                     const Kda p = kda_shape(time, cols);
                     const int64_t hd = p.head_dim, rows = p.batch * p.heads * time, n = rows * hd;
                     Plan plan;
                     plan.in("q", draw.unit_rows(rows, hd)).in("k", draw.unit_rows(rows, hd)).in("v", draw.values(n));
                     plan.in("g", draw.uniform(n, -5, -1e-4)).in("beta", draw.uniform(rows, 0, 1)).out("o", n, hd, draw.magnitude());
                     return plan.run(
                         [p](const auto& t, const auto& b) { t.kda(p, b[0], b[1], b[2], b[3], b[4], nullptr, b[5], nullptr, nullptr); });
                   }});
  for (const int64_t time : {1, 3}) {
    cases.push_back({"kda_step_" + std::to_string(time), kSum, [time](Draw& draw, int64_t batch, int64_t cols) {
                       const Kda p{
                           .batch = std::min<int64_t>(batch, 40), .time = time, .heads = 2, .head_dim = std::min<int64_t>(cols, 128)};
                       const int64_t hd = p.head_dim, units = p.batch * p.heads, rows = units * time, n = rows * hd;
                       Plan plan;
                       plan.in("q", draw.unit_rows(rows, hd)).in("k", draw.unit_rows(rows, hd)).in("v", draw.values(n));
                       plan.in("g", draw.uniform(n, -5, -1e-4)).in("beta", draw.uniform(rows, 0, 1));
                       plan.inout("state", draw.normal(units * hd * hd), hd, draw.magnitude()).out("o", n, hd, draw.magnitude());
                       return plan.run([p](const auto& t, const auto& b) { t.kda_step(p, b[0], b[1], b[2], b[3], b[4], b[5], b[6]); });
                     }});
  }
}

inline void add_loss_and_optimizers(std::vector<Case>& cases) {
  for (const int64_t classes : {11, 256}) {
    cases.push_back({"cross_entropy_" + std::to_string(classes), 2e-5, [classes](Draw& draw, int64_t rows, int64_t k) {
                       const CrossEntropy shape{.rows = rows, .k = k, .classes = classes};
                       std::vector<std::uint8_t> target;
                       for (const std::uint32_t i : draw.indices(rows, classes)) target.push_back(static_cast<std::uint8_t>(i));
                       const double deviation = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(k, 1)));
                       std::vector<double> v = draw.normal(classes * k);
                       for (double& value : v) value = as_f32(value * deviation);
                       const double size = draw.magnitude();
                       Plan plan;
                       plan.in("x", draw.values(rows * k)).in("v", std::move(v)).out("nats", rows, 1, size).out("lse", rows, 1, size);
                       plan.in("dnats", draw.normal(rows)).gradient("dx", draw.normal(rows * k), k, 1);
                       plan.gradient("dv", draw.normal(classes * k), k, size * std::sqrt(static_cast<double>(rows)));
                       return plan.run([shape, target](const auto& t, const auto& b) {
                         t.cross_entropy(shape, b[0], b[1], target.data(), b[2], b[3]);
                         t.cross_entropy_backward(shape, b[0], b[1], target.data(), b[3], b[4], b[5], b[6]);
                       });
                     }});
  }
  cases.push_back({"sum_squares", kExact, [](Draw& draw, int64_t rows, int64_t d) {
                     Plan plan;
                     plan.in("x", draw.values(rows * d)).out("sum", 1, 1);
                     return plan.run([n = rows * d](const auto& t, const auto& b) {
                       *b[1] = static_cast<std::decay_t<decltype(*b[1])>>(t.sum_squares(n, b[0]));
                     });
                   }});
  for (const bool columns : {false, true}) {
    cases.push_back({columns ? "normalize_columns" : "normalize_rows", kSum,
                     [columns](Draw& draw, int64_t rows, int64_t cols) {
                       Plan plan;
                       plan.inout("x", draw.values(rows * cols), cols);
                       return plan.run([=](const auto& t, const auto& b) {
                         (columns ? t.normalize_columns : t.normalize_rows)(rows, cols, 0x1p-40, b[0]);
                       });
                     },
                     1e-25});
  }
  cases.push_back(
      {"adamw", kSum, [](Draw& draw, int64_t rows, int64_t d) {
         const int64_t n = rows * d;
         Plan plan;
         plan.in("g", draw.values(n)).inout("m", draw.normal(n), d).inout("v", draw.uniform(n, 0.01, 1), d).inout("w", draw.normal(n), d);
         return plan.run([n](const auto& t, const auto& b) {
           t.adamw(n, 0x1p-8, 0.875, 0.9375, 0x1p-27, 0.125, 0.25, 0.1875, 0.5, b[0], b[1], b[2], b[3]);
         });
       }});
}

inline std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_gemm(cases);
  add_elementwise(cases);
  add_hidden(cases);
  add_norms(cases);
  add_loop_block(cases);
  add_attention(cases);
  add_loss_and_optimizers(cases);
  return cases;
}

}  // namespace dormouse::ops::cases
