// The entries of the CPU column. Shapes and formulas: ops/ops.h. All work on f32.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace dormouse::ops::cpu {

// gemm_onednn.cpp: oneDNN, f32 and bf16 (i16: gemm_i16.cpp). gemm_portable.cpp: own, f32, a row's bits independent of m; bf16 rounds its
// inputs.
void gemm_onednn(const Gemm&, const float* a, const float* b, float* c);
void gemm_portable(const Gemm&, const float* a, const float* b, float* c);
// gemm_i16.cpp: own, whole numbers, for g.whole() and m > 0; base::Error where native_i16() is false
void gemm_i16(const Gemm&, const float* a, const float* b, float* c);
// Readies oneDNN at the CPU level of its first use; false at other levels and below SSE4.1 (cpu_level.cpp).
bool onednn_ready();

// bf16.cpp: dense to [rows,cols] from rows `ld` apart, nearest even, NaN stays NaN.
void round_to_bf16(std::int64_t rows, std::int64_t cols, std::int64_t ld, const float* from, std::uint16_t* to);

// narrow.cpp
void products(std::int64_t rows, std::span<const Product<float>> list, Sweep sweep);

// gather.cpp
void gather(std::int64_t rows, std::int64_t d, const std::uint32_t* index, const float* table, float* y);
void gather_backward(std::int64_t rows, std::int64_t d, const std::uint32_t* index, const float* dy, float* dtable);

// elementwise.cpp
void add_row(std::int64_t rows, std::int64_t d, const float* x, const float* e, float* y);
void add_row_backward(std::int64_t rows, std::int64_t d, const float* dy, float* dx, float* de);
void axpy(std::int64_t n, float alpha, const float* x, float* y);
void silu(std::int64_t n, const float* x, float* y);
void silu_backward(std::int64_t n, const float* x, const float* dy, float* dx);
void sigmoid(std::int64_t n, const float* x, float* y);
void sigmoid_backward(std::int64_t n, const float* y, const float* dy, float* dx);
void scale_columns(const ScaleColumns&, const float* x, const float* s, const float* p, float* y);
void scale_columns_backward(const ScaleColumns&, const float* x, const float* s, const float* p, const float* dy, float* dx, float* ds,
                            float* dp);

// hidden.cpp
void hidden_onednn(const Hidden&, const float* x, const float* v, const float* u, float* y);
void hidden_onednn_backward(const Hidden&, const float* x, const float* v, const float* u, const float* dy, float* dx, float* dv,
                            float* du);
void hidden_portable(const Hidden&, const float* x, const float* v, const float* u, float* y);
void hidden_portable_backward(const Hidden&, const float* x, const float* v, const float* u, const float* dy, float* dx, float* dv,
                              float* du);

// optimize.cpp
double sum_squares(std::int64_t n, const float* x);
void normalize_columns(std::int64_t rows, std::int64_t cols, float floor, float* x);
void normalize_rows(std::int64_t rows, std::int64_t cols, float floor, float* x);
void adamw(std::int64_t n, float lr, float beta1, float beta2, float eps, float weight_decay, float bias1, float bias2, float grad_scale,
           const float* g, float* m, float* v, float* w);

// norm.cpp
void rms_norm(const RmsNorm&, const float* x, const float* g, float* y, float* inv);
void rms_norm_backward(const RmsNorm&, const float* x, const float* g, const float* inv, const float* dy, float* dx, float* dg);
void silu_head_norm(const HeadNorm&, const float* x, float* y, float* inv);
void silu_head_norm_backward(const HeadNorm&, const float* x, const float* y, const float* inv, const float* dy, float* dx);
void gated_head_norm(const GatedHeadNorm&, const float* o, const float* z, const float* w, float* y, float* inv);
void gated_head_norm_backward(const GatedHeadNorm&, const float* o, const float* z, const float* w, const float* inv, const float* dy,
                              float* d_o, float* dz, float* dw);

// gating.cpp
void gates(const Gates&, const float* c, float* gates);
void gates_backward(const Gates&, const float* c, const float* gates, const float* dgates, float* dc);
void decay(const Decay&, const float* zeta, const float* a_log, const float* bias, float* g);
void decay_backward(const Decay&, const float* zeta, const float* a_log, const float* bias, const float* g, const float* dg, float* dzeta,
                    float* da_log, float* dbias);

// mix.cpp
void engram_read(const EngramRead&, const float* key, const float* val, const float* u, float* read, float* saved);
void engram_read_backward(const EngramRead&, const float* key, const float* val, const float* u, const float* saved, const float* dread,
                          float* dkey, float* dval, float* du);
void residual(const Residual&, const float* u, const float* rho, const float* gates, const float* a, const float* m, const float* d,
              const float* f, float* h);
void residual_backward(const Residual&, const float* rho, const float* gates, const float* a, const float* m, const float* d,
                       const float* f, const float* dh, float* du, float* drho, float* dgates, float* da, float* dm, float* dd, float* df);

// loss.cpp
void cross_entropy(const CrossEntropy&, const float* x, const float* v, const std::uint8_t* target, float* nats, float* lse);
void cross_entropy_backward(const CrossEntropy&, const float* x, const float* v, const std::uint8_t* target, const float* lse,
                            const float* dnats, float* dx, float* dv);
void log_softmax(std::int64_t rows, std::int64_t d, const float* x, float* y);

}  // namespace dormouse::ops::cpu
