// Both iterations apply an odd polynomial to the singular values: X <- (a I + b P + c P^2) X with P = X X^T on the narrow side.
// A tall X [n,k] is never transposed: P = X^T X and the factor stands on the right.
#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace dormouse::optim {

namespace {

using ops::Compute;
using ops::Gemm;
using ops::OpTable;
using tensor::Dtype;
using tensor::Tensor;

struct Polynomial {
  float a, b, c;
};

constexpr Polynomial kNewtonSchulz{3.4445F, -4.7750F, 2.0315F};
// The Polar Express limit polynomial: p(1) = 1, p'(1) = p''(1) = 0, basin 0 < x < sqrt(7/3).
constexpr Polynomial kPolar{1.875F, -1.25F, 0.375F};
constexpr float kNormFloor = 1e-7F;
constexpr int kPowerIterations = 5;
constexpr double kPowerFloor = 1e-12, kRayleighFloor = 1e-14, kSigmaFloor = 1e-7;
constexpr double kRetractMargin = 1.05;

Tensor matrix(std::int64_t rows, std::int64_t cols) { return Tensor::empty({rows, cols}, Dtype::f32); }

// x += alpha I
void add_to_diagonal(double alpha, const Tensor& x) {
  const std::int64_t k = x.dim(0);
  for (std::int64_t i = 0; i < k; ++i) x.data<float>()[i * (k + 1)] += static_cast<float>(alpha);
}

// y = alpha x: columns of one scale, in one pass
void scaled(const OpTable<float>& table, double alpha, const Tensor& x, const Tensor& y) {
  const std::vector<float> factors(static_cast<std::size_t>(x.dim(1)), static_cast<float>(alpha));
  table.scale_columns({.rows = x.dim(0), .k = x.dim(1)}, x.data<float>(), factors.data(), nullptr, y.data<float>());
}

// One matrix under iteration: the current value and a second buffer of its size, P and the two k x k buffers of the polynomial.
class Iteration {
 public:
  Iteration(const OpTable<float>& table, const Tensor& x, Compute compute)
      : table_(table),
        compute_(compute),
        rows_(x.dim(0)),
        cols_(x.dim(1)),
        wide_(rows_ <= cols_),
        side_(std::min(rows_, cols_)),
        value_(matrix(rows_, cols_)),
        next_(matrix(rows_, cols_)),
        gram_(matrix(side_, side_)),
        inner_(matrix(side_, side_)),
        factor_(matrix(side_, side_)) {}

  // value = alpha x
  void start(double alpha, const Tensor& x) { scaled(table_, alpha, x, value_); }

  // P [k,k] of x
  const Tensor& gram(const Tensor& x) {
    const Gemm shape{.m = side_,
                     .n = side_,
                     .k = std::max(rows_, cols_),
                     .lda = cols_,
                     .ldb = cols_,
                     .ldc = side_,
                     .transpose_a = !wide_,
                     .transpose_b = wide_,
                     .compute = compute_,
                     .symmetric = true};
    table_.gemm(shape, x.data<float>(), x.data<float>(), gram_.data<float>());
    return gram_;
  }

  // value <- (a I + P (b I + c P)) value
  void apply(const Polynomial& p) {
    gram(value_);
    scaled(table_, p.c, gram_, inner_);
    add_to_diagonal(p.b, inner_);
    factor_.fill_zero();
    add_to_diagonal(p.a, factor_);
    const Gemm square{.m = side_,
                      .n = side_,
                      .k = side_,
                      .lda = side_,
                      .ldb = side_,
                      .ldc = side_,
                      .accumulate = true,
                      .compute = compute_,
                      .symmetric = true};  // both are polynomials of P
    table_.gemm(square, gram_.data<float>(), inner_.data<float>(), factor_.data<float>());
    const Gemm product{
        .m = rows_, .n = cols_, .k = side_, .lda = wide_ ? side_ : cols_, .ldb = wide_ ? cols_ : side_, .ldc = cols_, .compute = compute_};
    const Tensor& left = wide_ ? factor_ : value_;
    const Tensor& right = wide_ ? value_ : factor_;
    table_.gemm(product, left.data<float>(), right.data<float>(), next_.data<float>());
    std::swap(value_, next_);
  }

  // sigma_max of the matrix whose P was computed last, from below, by power iterations that start at P 1.
  double largest_singular_value() {
    Tensor v = matrix(side_, 1);
    Tensor unit = matrix(side_, 1);
    std::fill_n(unit.data<float>(), side_, 1.0F);
    const Gemm times{.m = side_, .n = 1, .k = side_, .lda = side_, .ldb = 1, .ldc = 1};
    const Gemm dot{.m = 1, .n = 1, .k = side_, .lda = side_, .ldb = 1, .ldc = 1};
    table_.gemm(times, gram_.data<float>(), unit.data<float>(), v.data<float>());
    for (int i = 0; i < kPowerIterations; ++i) {
      scaled(table_, 1 / std::max(std::sqrt(table_.sum_squares(side_, v.data<float>())), kPowerFloor), v, unit);
      table_.gemm(times, gram_.data<float>(), unit.data<float>(), v.data<float>());
    }
    table_.gemm(times, gram_.data<float>(), v.data<float>(), unit.data<float>());
    float rayleigh = 0;
    table_.gemm(dot, v.data<float>(), unit.data<float>(), &rayleigh);
    const double length = std::max(table_.sum_squares(side_, v.data<float>()), kRayleighFloor);
    return std::max(std::sqrt(std::max(static_cast<double>(rayleigh), 0.0) / length), kSigmaFloor);
  }

  const Tensor& value() const { return value_; }

 private:
  const OpTable<float>& table_;
  Compute compute_;
  std::int64_t rows_, cols_;
  bool wide_;
  std::int64_t side_;
  Tensor value_, next_, gram_, inner_, factor_;
};

}  // namespace

void newton_schulz(const OpTable<float>& table, const Tensor& x, std::int64_t steps, Compute compute) {
  if (x.size() == 0) return;
  const double norm = std::sqrt(table.sum_squares(x.size(), x.data<float>()));
  Iteration iteration(table, x, compute);
  iteration.start(1 / std::max(norm, static_cast<double>(kNormFloor)), x);
  for (std::int64_t i = 0; i < steps; ++i) iteration.apply(kNewtonSchulz);
  x.copy_from(iteration.value());
}

void column_row_normalize(const OpTable<float>& table, const Tensor& x, bool transposed) {
  const auto first = transposed ? table.normalize_rows : table.normalize_columns;
  const auto second = transposed ? table.normalize_columns : table.normalize_rows;
  first(x.dim(0), x.dim(1), kNormFloor, x.data<float>());
  second(x.dim(0), x.dim(1), kNormFloor, x.data<float>());
}

void retract(const OpTable<float>& table, const Tensor& x, std::int64_t iterations) {
  if (x.size() == 0) return;
  Iteration iteration(table, x, Compute::f32);
  iteration.gram(x);
  iteration.start(1 / (kRetractMargin * iteration.largest_singular_value()), x);
  for (std::int64_t i = 0; i < iterations; ++i) iteration.apply(kPolar);
  x.copy_from(iteration.value());
}

double orthonormality_error(const OpTable<float>& table, const Tensor& x) {
  if (x.size() == 0) return 0;
  Iteration iteration(table, x, Compute::f32);
  const Tensor& difference = iteration.gram(x);
  add_to_diagonal(-1, difference);
  return std::sqrt(table.sum_squares(difference.size(), difference.data<float>())) / static_cast<double>(difference.dim(0));
}

}  // namespace dormouse::optim
