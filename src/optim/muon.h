// Muon+: Newton-Schulz orthogonalisation and column / row normalisation; and the retraction of spectral factors.
// All matrices are f32, contiguous, rank 2.
#pragma once

#include <cstdint>

#include "ops/ops.h"
#include "tensor/tensor.h"

namespace dormouse::optim {

// X [rows, cols] <- Newton-Schulz(X) with (3.4445, -4.7750, 2.0315), `steps` iterations on X / max(||X||_F, 1e-7), oriented to
// rows <= cols inside. A zero matrix stays zero. compute: of all products. Source: Keller Jordan, Muon.
void newton_schulz(const ops::OpTable<float>& table, const tensor::Tensor& x, std::int64_t steps, ops::Compute compute = ops::Compute::f32);

// Columns to unit L2, then rows, norms floored at 1e-7 (Muon+, arXiv 2602.21545). transposed: x holds the transpose of the
// matrix meant (a weight stored [in,out]), so its rows come first, then its columns.
void column_row_normalize(const ops::OpTable<float>& table, const tensor::Tensor& x, bool transposed = false);

// X [n, k] <- orthonormal columns (rows when n < k): X / (1.05 sigma), sigma its largest singular value by power iteration, then
// `iterations` times X <- (15 X - 10 X X^T X + 3 X X^T X X^T X) / 8. Source: the limit polynomial of Polar Express.
void retract(const ops::OpTable<float>& table, const tensor::Tensor& x, std::int64_t iterations);

// ||X^T X - I||_F / k for the narrower side k; 0 for an empty matrix.
double orthonormality_error(const ops::OpTable<float>& table, const tensor::Tensor& x);

}  // namespace dormouse::optim
