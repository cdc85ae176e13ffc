#include "optim/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "ops/cpu_level.h"
#include "ops/ops.h"

namespace dormouse::optim {
namespace {

using tensor::Dtype;
using tensor::Shape;
using tensor::Tensor;

class Muon : public testing::TestWithParam<bool> {
 protected:
  const ops::OpTable<float>& table() const { return GetParam() ? ops::cpu_table() : ops::reference_table<float>(); }
};
INSTANTIATE_TEST_SUITE_P(Column, Muon, testing::Bool(), [](const auto& column) { return column.param ? "Cpu" : "Reference"; });

Tensor random(const Shape& shape, std::uint64_t seed) {
  base::SplitMix64 rng(seed);
  Tensor t = Tensor::empty(shape, Dtype::f32);
  for (std::int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = static_cast<float>(rng.normal());
  return t;
}

// [n, k] with orthonormal columns (modified Gram-Schmidt in f64, twice), each times scale(column).
template <class Scale>
Tensor orthonormal(std::int64_t n, std::int64_t k, std::uint64_t seed, const Scale& scale) {
  base::SplitMix64 rng(seed);
  std::vector<std::vector<double>> columns(static_cast<std::size_t>(k), std::vector<double>(static_cast<std::size_t>(n)));
  for (std::size_t j = 0; j < columns.size(); ++j) {
    auto& c = columns[j];
    for (double& x : c) x = rng.normal();
    const auto dot = [&](const std::vector<double>& other) {
      double sum = 0;
      for (std::size_t i = 0; i < c.size(); ++i) sum += c[i] * other[i];
      return sum;
    };
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t o = 0; o < j; ++o) {
        const double along = dot(columns[o]);
        for (std::size_t i = 0; i < c.size(); ++i) c[i] -= along * columns[o][i];
      }
    const double length = std::sqrt(dot(c));
    for (double& x : c) x /= length;
  }
  Tensor t = Tensor::empty({n, k}, Dtype::f32);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < k; ++j)
      t.data<float>()[i * k + j] = static_cast<float>(columns[static_cast<std::size_t>(j)][static_cast<std::size_t>(i)] * scale(j));
  return t;
}
constexpr auto kUnit = [](std::int64_t) { return 1.0; };

Tensor transposed(const Tensor& x) {
  Tensor t = Tensor::empty({x.dim(1), x.dim(0)}, Dtype::f32);
  for (std::int64_t i = 0; i < x.dim(0); ++i)
    for (std::int64_t j = 0; j < x.dim(1); ++j) t.data<float>()[j * x.dim(0) + i] = x.data<float>()[i * x.dim(1) + j];
  return t;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double worst = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a.at(i) - b.at(i)));
  return worst;
}

bool finite(const Tensor& t) {
  return std::all_of(t.data<float>(), t.data<float>() + t.size(), [](float x) { return std::isfinite(x); });
}

TEST_P(Muon, NewtonSchulzAndColumnRowReproduceTheGolden) {
  const std::vector<float> g{1, 2, -0.5F, 0.25F, 3, -1};
  const std::vector<float> ns{0.327858F, 0.984503F, -0.097878F, 0.090037F, 0.613689F, -0.307309F};
  const std::vector<float> col_row{0.440508F, 0.897749F, -0.848257F, 0.529584F, 0.946814F, -0.321782F};
  Tensor x = Tensor::from<float>({3, 2}, g);
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] *= 0.05F;  // the first momentum
  Tensor t = transposed(x);
  newton_schulz(table(), x, 8);
  EXPECT_LT(largest_difference(x, Tensor::from<float>({3, 2}, ns)), 2e-6);
  column_row_normalize(table(), x);
  EXPECT_LT(largest_difference(x, Tensor::from<float>({3, 2}, col_row)), 2e-6);
  newton_schulz(table(), t, 8);
  column_row_normalize(table(), t, true);
  EXPECT_LT(largest_difference(transposed(t), Tensor::from<float>({3, 2}, col_row)), 2e-6);
}

// A matrix with known singular values maps each by the scalar polynomial, whatever its orientation. 140 columns are more than one block of
// a symmetric product, the last one short.
TEST_P(Muon, NewtonSchulzMapsSingularValuesByThePolynomial) {
  struct Size {
    std::int64_t rows, columns;
    double tolerance;
  };
  for (const Size& size : {Size{40, 8, 5e-6}, Size{150, 140, 2e-5}}) {
    const auto sigma = [&](std::int64_t j) { return 0.05 + 0.8 * static_cast<double>(j) / static_cast<double>(size.columns); };
    double norm = 0;
    for (std::int64_t j = 0; j < size.columns; ++j) norm += sigma(j) * sigma(j);
    const auto mapped = [&](std::int64_t j) {
      double s = sigma(j) / std::sqrt(norm);
      for (int i = 0; i < 5; ++i) s = s * (3.4445 + s * s * (-4.7750 + 2.0315 * s * s));
      return s;
    };
    for (const bool wide : {false, true}) {
      Tensor x = orthonormal(size.rows, size.columns, 1, sigma);
      Tensor expected = orthonormal(size.rows, size.columns, 1, mapped);
      if (wide) {
        x = transposed(x);
        expected = transposed(expected);
      }
      newton_schulz(table(), x, 5);
      EXPECT_LT(largest_difference(x, expected), size.tolerance) << wide << " " << size.columns;
    }
  }
}

TEST_P(Muon, NewtonSchulzInWholeNumbersHasTheSameDirection) {
  if (!ops::native_i16()) GTEST_SKIP() << "no AVX2 on this machine";
  for (const Shape& shape : {Shape{150, 140}, Shape{100, 300}, Shape{300, 250}}) {
    const Tensor x = random(shape, 3), y = x.clone();
    newton_schulz(table(), x, 5);
    newton_schulz(table(), y, 5, ops::Compute::i16);
    const double difference = largest_difference(x, y);
    EXPECT_LT(difference, 1e-3) << shape.text();  // elements are about 0.08
    EXPECT_GT(difference, 0) << shape.text();
  }
}

TEST_P(Muon, NewtonSchulzOfAZeroMatrixIsZero) {
  for (const Shape& shape : {Shape{4, 6}, Shape{6, 4}, Shape{1, 5}, Shape{5, 1}, Shape{1, 1}, Shape{0, 3}}) {
    const Tensor x = Tensor::zeros(shape, Dtype::f32);
    newton_schulz(table(), x, 8);
    column_row_normalize(table(), x);
    for (std::int64_t i = 0; i < x.size(); ++i) EXPECT_EQ(x.at(i), 0);
  }
}

TEST_P(Muon, DegenerateMatricesStayFiniteAndBounded) {
  std::vector<Tensor> cases{random({1, 7}, 1), random({7, 1}, 2), random({1, 1}, 3), Tensor::zeros({5, 4}, Dtype::f32)};
  cases.back().data<float>()[7] = -2;  // one entry
  const Tensor a = random({9, 1}, 4);
  const Tensor b = random({1, 5}, 5);
  cases.push_back(Tensor::empty({9, 5}, Dtype::f32));  // rank 1
  for (int i = 0; i < 9; ++i)
    for (int j = 0; j < 5; ++j) cases.back().data<float>()[i * 5 + j] = static_cast<float>(a.at(i) * b.at(j));
  cases.push_back(random({6, 6}, 6));  // tiny and huge
  for (int i = 0; i < 36; ++i) cases.back().data<float>()[i] *= 1e-20F;
  cases.push_back(random({6, 6}, 7));
  for (int i = 0; i < 36; ++i) cases.back().data<float>()[i] *= 1e18F;
  for (const Tensor& x : cases) {
    for (const bool flip : {false, true}) {
      const Tensor y = flip ? transposed(x) : x.clone();
      newton_schulz(table(), y, 8);
      EXPECT_TRUE(finite(y)) << y.shape().text();
      EXPECT_LT(std::sqrt(table().sum_squares(y.size(), y.data<float>())), 1.3 * std::sqrt(6.0)) << y.shape().text();
      column_row_normalize(table(), y);
      EXPECT_TRUE(finite(y)) << y.shape().text();
    }
  }
}

TEST_P(Muon, RetractionMapsAnOrthonormalFactorToItself) {
  for (const std::int64_t n : {768, 64}) {
    Tensor x = orthonormal(n, 64, 11, kUnit);
    const Tensor before = x.clone();
    retract(table(), x, 3);
    EXPECT_LT(largest_difference(x, before), 1e-6);
    Tensor t = transposed(before);
    retract(table(), t, 3);
    EXPECT_LT(largest_difference(transposed(t), before), 1e-6);
  }
}

TEST_P(Muon, RetractionConvergesToThePolarFactor) {
  const std::int64_t k = 16;
  const auto sigma = [&](std::int64_t j) { return 0.2 + 1.0 * static_cast<double>(j) / static_cast<double>(k - 1); };
  Tensor x = orthonormal(96, k, 12, sigma);
  EXPECT_GT(orthonormality_error(table(), x), 0.1);
  retract(table(), x, 8);
  EXPECT_LT(orthonormality_error(table(), x), 1e-6);
  EXPECT_LT(largest_difference(x, orthonormal(96, k, 12, kUnit)), 1e-5);
  // The run's own setting, three iterations a step, gets there in three steps.
  Tensor y = orthonormal(96, k, 12, sigma);
  for (int step = 0; step < 3; ++step) retract(table(), y, 3);
  EXPECT_LT(orthonormality_error(table(), y), 1e-6);
}

TEST_P(Muon, RetractionOfDegenerateFactorsIsFinite) {
  for (const Shape& shape : {Shape{5, 3}, Shape{3, 5}, Shape{1, 4}, Shape{4, 1}, Shape{0, 2}}) {
    const Tensor zero = Tensor::zeros(shape, Dtype::f32);
    retract(table(), zero, 3);
    EXPECT_TRUE(finite(zero));
  }
  const Tensor column = random({7, 1}, 3);
  retract(table(), column, 3);
  EXPECT_NEAR(table().sum_squares(7, column.data<float>()), 1, 1e-6);
}

TEST_P(Muon, OrthonormalityErrorIsTheFrobeniusNormOverK) {
  EXPECT_LT(orthonormality_error(table(), orthonormal(50, 5, 1, kUnit)), 1e-6);
  const auto twice = [](std::int64_t) { return 2.0; };  // X^T X - I = 3 I
  EXPECT_NEAR(orthonormality_error(table(), orthonormal(50, 5, 1, twice)), 3 * std::sqrt(5.0) / 5, 1e-5);
  EXPECT_NEAR(orthonormality_error(table(), transposed(orthonormal(50, 5, 1, twice))), 3 * std::sqrt(5.0) / 5, 1e-5);
}

}  // namespace
}  // namespace dormouse::optim
