// Muon+: Newton-Schulz orthogonalisation and column / row normalisation; and the retraction of spectral factors.
// All matrices are f32, contiguous, rank 2.
#pragma once

#include <cstdint>

#include "ops/ops.h"
#include "tensor/tensor.h"

namespace dormouse::optim {

// X [rows, cols] <- Newton-Schulz(X) with (3.4445, -4.7750, 2.0315), `steps` iterations on X / max(||X||_F, 1e-7), oriented to
// rows <= cols inside. A zero matrix stays zero. Source: Keller Jordan's Muon; reference 3.1.
void newton_schulz(const ops::OpTable<float>& table, const tensor::Tensor& x, std::int64_t steps);

// Columns to unit L2, then rows, norms floored at 1e-7 (Muon+, arXiv 2602.21545). transposed: x holds the transpose of the
// matrix meant (a weight stored [in,out]), so its rows come first, then its columns.
void column_row_normalize(const ops::OpTable<float>& table, const tensor::Tensor& x, bool transposed = false);

// The retraction of model.md section 3, in place on X [n, k], n >= k or not.
void retract(const ops::OpTable<float>& table, const tensor::Tensor& x, std::int64_t iterations);

// ||X^T X - I||_F / k for the narrower side k; 0 for an empty matrix.
double orthonormality_error(const ops::OpTable<float>& table, const tensor::Tensor& x);

}  // namespace dormouse::optim
