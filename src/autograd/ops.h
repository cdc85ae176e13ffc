// The differentiable ops: allocate, call the table, push the backward. Formulas and saved tensors: ops/ops.h.
// Each works on f32 (the tape's table) and f64 (reference column); x.dtype() decides.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/tape.h"

namespace dormouse::autograd {

enum class Precision : std::uint8_t { tape, f32 };  // tape: the tape's compute type; f32: always f32 (heads, norms)

// x [N,in] W [in,out] -> [N,out].   transposed: x [N,k] V [out,k] -> [N,out] = x V^T.
Var matmul(Tape& tape, const Var& x, const Var& w, Precision precision = Precision::tape);
Var matmul_transposed(Tape& tape, const Var& x, const Var& v, Precision precision = Precision::tape);
// sum_e xs[e] vs[e]^T, one output buffer.
Var matmul_transposed_sum(Tape& tape, std::span<const Var> xs, std::span<const Var> vs, Precision precision = Precision::tape);
// silu(x V^T) U, the wide middle never in memory: x [N,k], v [f,k], u [f,r] -> [N,r].
Var hidden(Tape& tape, const Var& x, const Var& v, const Var& u, Precision precision = Precision::tape);
// base + x W: base [N,out] is not modified (its gradient is the output's). W may be a rows_slice of a parameter: see slice_rows.
Var matmul_add(Tape& tape, const Var& base, const Var& x, const Var& w, Precision precision = Precision::tape);

// Rows [begin, begin+count) of a 2-D Var as a Var that shares value and gradient storage (a parameter's block, one row of
// iteration_embedding).
Var slice_rows(Tape& tape, const Var& x, std::int64_t begin, std::int64_t count);

Var gather(Tape& tape, const Tensor& index_u32, const Var& table);  // index [N] -> [N,d]; [N,m] -> [N,m*d]
Var add_row(Tape& tape, const Var& x, const Var& row);              // row [d] or [1,d]
Var rms_norm(Tape& tape, const Var& x, const Var& gain, double eps);
Var silu(Tape& tape, const Var& x);
Var sigmoid(Tape& tape, const Var& x);
Var gates(Tape& tape, const Var& c, std::int64_t experts, double lam_max, bool smooth);  // [N,width] -> [N,3+E]

Var silu_head_norm(Tape& tape, const Var& x, std::int64_t head_dim, double eps);
Var decay(Tape& tape, const Var& zeta, const Var& a_log, const Var& bias, double g_min);
// q,k,v,g [b*t, H*hd], beta [b*t,H]; state0 [b,H,hd,hd] or undefined Tensor; final_state (same shape) is filled when not null.
Var kda(Tape& tape, const ops::Kda& shape, const Var& q, const Var& k, const Var& v, const Var& g, const Var& beta, const Tensor& state0,
        Tensor* final_state);
Var gated_head_norm(Tape& tape, const Var& o, const Var& z, const Var& w, std::int64_t head_dim, double eps);

Var engram_read(Tape& tape, const Var& key, const Var& val, const Var& u, double eps);
// attention, memory may be undefined (arm off).
Var residual(Tape& tape, const Var& u, const Var& rho, const Var& gates, const Var& attention, const Var& memory, const Var& dense,
             const Var& ffn);

// x * s per column, times column `expert`+3 of gates per row when gates is defined.
Var scale_columns(Tape& tape, const Var& x, const Var& s, const Var& gates = {}, std::int64_t expert = 0);

// nats [N]; x [N,k], v [256,k], target u8 [N]. Always f32 (or f64).
Var cross_entropy(Tape& tape, const Var& x, const Var& v, const Tensor& target);

Var mean_of(Tape& tape, std::span<const Var> xs);  // elementwise mean
Var weighted_mean(Tape& tape, std::span<const Var> xs,
                  std::span<const double> weights);  // sum_i w_i * mean(xs[i]) -> [1], f64 accumulation

}  // namespace dormouse::autograd
