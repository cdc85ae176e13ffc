// Every GEMM of the CPU column against f64, at every CPU level of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "base/threads.h"
#include "ops/cpu_level.h"
#include "ops/ops.h"
#include "sanitizer.h"

namespace dormouse::ops {
namespace {

constexpr double kUnits = 10;       // a product left out errs by thousands of units of worst_error()
constexpr float kGuard = 12345.0f;  // stands between ld and width, and must stay

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  base::SplitMix64 stream(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(stream.uniform() * 2 - 1);
  return values;
}

struct Problem {
  Gemm g;
  std::vector<float> a, b, c;
};

Problem make_problem(std::int64_t m, std::int64_t n, std::int64_t k, int transposes, bool accumulate, std::int64_t slack) {
  Problem p;
  Gemm& g = p.g;
  g.m = m;
  g.n = n;
  g.k = k;
  g.transpose_a = (transposes & 1) != 0;
  g.transpose_b = (transposes & 2) != 0;
  g.accumulate = accumulate;
  g.lda = (g.transpose_a ? m : k) + slack;
  g.ldb = (g.transpose_b ? k : n) + slack;
  g.ldc = n + slack;
  const auto size = [](std::int64_t rows, std::int64_t ld) { return static_cast<std::size_t>(rows * ld + 1); };
  p.a = random_values(size(g.transpose_a ? k : m, g.lda), 1);
  p.b = random_values(size(g.transpose_b ? n : k, g.ldb), 2);
  p.c = random_values(size(m, g.ldc), 3);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = n; j < g.ldc; ++j) p.c[static_cast<std::size_t>(i * g.ldc + j)] = kGuard;
  }
  return p;
}

// Largest |c - exact| over the bound's unit: sqrt(k+1) roundings of products of size <= 1, plus one of the sum.
double worst_error(const Problem& p, const std::vector<float>& result) {
  const Gemm& g = p.g;
  const bool half = g.compute == Compute::bf16;
  const auto value = [&](float x) { return static_cast<double>(half ? base::f32_from_bf16(base::bf16_from_f32(x)) : x); };
  double worst = 0;
  for (std::int64_t i = 0; i < g.m; ++i) {
    for (std::int64_t j = 0; j < g.n; ++j) {
      double sum = g.accumulate ? static_cast<double>(p.c[static_cast<std::size_t>(i * g.ldc + j)]) : 0;
      for (std::int64_t q = 0; q < g.k; ++q) {
        sum += value(p.a[static_cast<std::size_t>(g.transpose_a ? q * g.lda + i : i * g.lda + q)]) *
               value(p.b[static_cast<std::size_t>(g.transpose_b ? j * g.ldb + q : q * g.ldb + j)]);
      }
      const double error = std::abs(sum - static_cast<double>(result[static_cast<std::size_t>(i * g.ldc + j)]));
      worst = std::max(worst, error / (0x1p-23 * (std::sqrt(static_cast<double>(g.k)) + 1)));
    }
    for (std::int64_t j = g.n; j < g.ldc; ++j) {
      if (result[static_cast<std::size_t>(i * g.ldc + j)] != kGuard) return 1e30;
    }
  }
  return worst;
}

std::vector<float> run(const OpTable<float>& table, const Problem& p) {
  std::vector<float> c = p.c;
  table.gemm(p.g, p.a.data(), p.b.data(), c.data());
  return c;
}

std::string describe(const Problem& p, const OpTable<float>& table) {
  return std::string(table.name) + " at " + cpu_level() + ", m=" + std::to_string(p.g.m) + " n=" + std::to_string(p.g.n) +
         " k=" + std::to_string(p.g.k) + (p.g.transpose_a ? " a^T" : "") + (p.g.transpose_b ? " b^T" : "") + (p.g.accumulate ? " +=" : "");
}

class Gemms : public testing::Test {
 protected:
  void SetUp() override {
    base::set_threads(2);
    set_cpu_level("");
  }
  void TearDown() override { set_cpu_level(""); }
};

const std::int64_t kShapes[][3] = {{1, 1, 1},    {1, 33, 70},  {2, 7, 5},   {3, 64, 300},  {5, 31, 17},   {8, 100, 257}, {9, 32, 256},
                                   {12, 16, 64}, {13, 33, 65}, {31, 95, 3}, {97, 65, 513}, {130, 48, 40}, {300, 7, 20},  {2100, 9, 1000}};

void check_all(const OpTable<float>& table, Compute compute, double bound) {
  for (const auto& shape : kShapes) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      for (const bool accumulate : {false, true}) {
        if (shape[0] * shape[2] > 1000000 && (cpu_level() == "scalar" || transposes != (accumulate ? 1 : 0))) continue;  // slow
        if (tests::kAddressSanitizer && cpu_level() == "scalar" && shape[0] * shape[1] * shape[2] > 50000) continue;     // slow
        for (const std::int64_t slack : {0, 5}) {
          Problem p = make_problem(shape[0], shape[1], shape[2], transposes, accumulate, slack);
          p.g.compute = compute;
          ASSERT_LT(worst_error(p, run(table, p)), bound) << describe(p, table) << " slack " << slack;
        }
      }
    }
  }
}

TEST_F(Gemms, PortableMatchesF64AtEveryLevelShapeAndTranspose) {
  for (const std::string& level : available_cpu_levels()) {
    set_cpu_level(level);
    check_all(cpu_table(true), Compute::f32, kUnits);
  }
}

TEST_F(Gemms, FastMatchesF64AtEveryShapeAndTranspose) { check_all(cpu_table(), Compute::f32, kUnits); }

TEST_F(Gemms, FastBelowSse4FallsBackToTheOwnGemmAndSaysSo) {
  set_cpu_level("scalar");
  EXPECT_EQ(gemm_library(), "own");
  check_all(cpu_table(), Compute::f32, kUnits);
}

// Truncating instead of rounding to nearest, or leaving f32 inputs alone, errs by 2^-9 per product: thousands of units.
TEST_F(Gemms, Bf16MatchesTheRoundedReference) {
  check_all(cpu_table(true), Compute::bf16, kUnits);
  if (native_bf16()) {
    check_all(cpu_table(), Compute::bf16, kUnits);
  } else {
    std::printf("no native bf16 here: the oneDNN half of this test is skipped\n");
  }
}

TEST_F(Gemms, Bf16InputsAreRoundedToNearestEvenOnAllTies) {
  if (!native_bf16()) GTEST_SKIP() << "no native bf16 on this machine";
  // a = values halfway between two bf16 numbers, b = 1: the product shows the rounded input.
  std::vector<float> a;
  for (std::uint32_t high = 0x0100; high < 0x7f00; ++high) {
    a.push_back(std::bit_cast<float>((high << 16) | 0x8000U));
    a.push_back(std::bit_cast<float>(((high | 0x8000U) << 16) | 0x8000U));
    a.push_back(std::bit_cast<float>((high << 16) | 0x8001U));
  }
  const float one = 1.0f;
  std::vector<float> c(a.size());
  const auto m = static_cast<std::int64_t>(a.size());
  for (const bool portable : {false, true}) {
    const Gemm g{.m = m, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1, .compute = Compute::bf16};
    cpu_table(portable).gemm(g, a.data(), &one, c.data());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(c[i], base::f32_from_bf16(base::bf16_from_f32(a[i]))) << a[i];
  }
}

TEST_F(Gemms, EmptyProductsClearOrKeepTheResult) {
  for (const bool portable : {false, true}) {
    const OpTable<float>& table = cpu_table(portable);
    for (const bool accumulate : {false, true}) {
      Problem p = make_problem(5, 7, 0, 0, accumulate, 3);
      p.g.lda = p.g.ldb = 10;
      EXPECT_LT(worst_error(p, run(table, p)), 1e-9) << describe(p, table);
    }
    for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{0, 7}, {7, 0}}) {
      const Problem p = make_problem(m, n, 4, 0, false, 2);
      EXPECT_EQ(run(table, p), p.c) << describe(p, table);
    }
  }
}

TEST_F(Gemms, PortableRowHasTheSameBitsWhateverStandsBesideIt) {
  const OpTable<float>& table = cpu_table(true);
  for (const std::string& level : available_cpu_levels()) {
    set_cpu_level(level);
    for (int transposes = 0; transposes < 4; transposes += 2) {  // rows of a lie whole in memory
      for (const std::int64_t n : {33, 64}) {
        const Problem whole = make_problem(200, n, 300, transposes, false, 0);
        const std::vector<float> all = run(table, whole);
        for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 100}) {
          Problem part = whole;
          part.g.m = m;
          const std::vector<float> few = run(table, part);
          for (std::int64_t i = 0; i < m * n; ++i) {
            ASSERT_EQ(few[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(i)]) << describe(part, table) << " at " << i;
          }
        }
      }
    }
  }
}

TEST_F(Gemms, ASymmetricProductIsTheWholeOneAboveItsDiagonalAndItsMirrorImageBelow) {
  std::vector<Compute> types{Compute::f32};
  if (native_i16()) types.push_back(Compute::i16);
  for (const Compute compute : types) {
    for (const std::int64_t m : {70, 130, 193, 500}) {
      for (const int transposes : {0, 1, 2}) {
        for (const bool accumulate : {false, true}) {
          Problem p = make_problem(m, m, transposes == 0 ? m : 600, transposes, accumulate, 5);
          p.g.compute = compute;
          const auto at = [&](std::int64_t row, std::int64_t column) { return static_cast<std::size_t>(row * p.g.ldc + column); };
          const auto make_symmetric = [&](std::vector<float>& x) {
            for (std::int64_t i = 0; i < m; ++i) {
              for (std::int64_t j = 0; j < i; ++j) x[at(i, j)] = x[at(j, i)];
            }
          };
          if (transposes == 0) make_symmetric(p.a);
          make_symmetric(p.c);
          p.b = p.a;
          for (const bool portable : {false, true}) {
            const OpTable<float>& table = cpu_table(portable);
            p.g.symmetric = false;
            const std::vector<float> whole = run(table, p);
            p.g.symmetric = true;
            for (const int threads : {1, 2, 3, 7}) {
              base::set_threads(threads);
              const std::vector<float> half = run(table, p);
              for (std::int64_t i = 0; i < m; ++i) {
                for (std::int64_t j = 0; j < p.g.ldc; ++j) {
                  ASSERT_NEAR(half[at(i, j)], whole[at(i, j)], 1e-3) << describe(p, table) << " at " << i << " " << j;
                  if (j >= i && compute == Compute::f32) continue;  // row blocks of their own: other bits
                  ASSERT_EQ(half[at(i, j)], j < i ? half[at(j, i)] : whole[at(i, j)])
                      << describe(p, table) << " at " << i << " " << j << ", " << threads << " threads";
                }
              }
            }
            base::set_threads(2);
          }
        }
      }
    }
  }
}

TEST_F(Gemms, PortableHasTheSameBitsForEveryThreadCount) {
  const OpTable<float>& table = cpu_table(true);
  const Problem p = make_problem(130, 200, 600, 3, true, 1);
  base::set_threads(1);
  const std::vector<float> one = run(table, p);
  for (const int threads : {2, 3, 7}) {
    base::set_threads(threads);
    EXPECT_EQ(run(table, p), one) << threads << " threads";
  }
}

TEST_F(Gemms, RepeatedCallsHaveTheSameBits) {
  for (const bool portable : {false, true}) {
    const OpTable<float>& table = cpu_table(portable);
    for (const Compute compute : {Compute::f32, Compute::bf16, Compute::i16}) {
      if (compute == Compute::bf16 && !portable && !native_bf16()) continue;
      if (compute == Compute::i16 && !native_i16()) continue;
      for (int transposes = 0; transposes < 4; ++transposes) {
        Problem p = make_problem(64, 96, 2000, transposes, true, 0);
        p.g.compute = compute;
        const std::vector<float> first = run(table, p);
        for (int i = 0; i < 5; ++i) ASSERT_EQ(run(table, p), first) << describe(p, table);
      }
    }
  }
}

// |result - other| over |a||b| of its row and column, and how it stands in all elements.
struct Difference {
  double worst = 0, root_mean_square = 0;
};
template <class Other>
Difference difference(const Problem& p, const std::vector<float>& result, const Other& other) {
  const Gemm& g = p.g;
  const auto norm = [&](const std::vector<float>& x, std::int64_t first, std::int64_t step) {
    double sum = 0;
    for (std::int64_t q = 0; q < g.k; ++q) sum += std::pow(static_cast<double>(x[static_cast<std::size_t>(first + q * step)]), 2);
    return std::sqrt(sum);
  };
  Difference d;
  for (std::int64_t i = 0; i < g.m; ++i) {
    const double row = g.transpose_a ? norm(p.a, i, g.lda) : norm(p.a, i * g.lda, 1);
    for (std::int64_t j = 0; j < g.n; ++j) {
      const double column = g.transpose_b ? norm(p.b, j * g.ldb, 1) : norm(p.b, j, g.ldb);
      const auto at = static_cast<std::size_t>(i * g.ldc + j);
      const double error = std::abs(static_cast<double>(result[at]) - static_cast<double>(other[at])) / std::max(row * column, 1e-30);
      d.worst = std::max(d.worst, error);
      d.root_mean_square += error * error / static_cast<double>(g.m * g.n);
    }
    for (std::int64_t j = g.n; j < g.ldc; ++j) {
      if (result[static_cast<std::size_t>(i * g.ldc + j)] != kGuard) d.worst = 1e30;
    }
  }
  d.root_mean_square = std::sqrt(d.root_mean_square);
  return d;
}

std::vector<double> exact(const Problem& p, Compute compute) {
  const std::vector<double> a(p.a.begin(), p.a.end()), b(p.b.begin(), p.b.end());
  std::vector<double> c(p.c.begin(), p.c.end());
  Gemm g = p.g;
  g.compute = compute;
  reference_table<double>().gemm(g, a.data(), b.data(), c.data());
  return c;
}

// At every level that has kernels of its own.
class WholeNumbers : public Gemms, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    Gemms::SetUp();
    const auto levels = available_cpu_levels();
    if (std::find(levels.begin(), levels.end(), GetParam()) == levels.end()) GTEST_SKIP() << "no " << GetParam() << " on this machine";
    set_cpu_level(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, WholeNumbers, testing::Values("avx2", "avx512"), [](const auto& instance) { return instance.param; });

const std::int64_t kWholeShapes[][3] = {{1, 64, 64},  {11, 65, 65},   {12, 64, 512},    {13, 96, 513}, {97, 70, 130},
                                        {64, 64, 67}, {200, 100, 20}, {130, 161, 1025}, {5, 3, 700},   {96, 128, 96}};

// The rounding of the inputs errs by 9e-6 |a||b|: what is left out, scaled wrongly or rounded towards zero errs by more, and so does the
// difference to the same product in f64 of the same rounded inputs (where norms rounded in f32 turn a few of them).
TEST_P(WholeNumbers, MatchTheReferenceAtEveryShapeAndTranspose) {
  for (const bool portable : {false, true}) {
    for (const auto& shape : kWholeShapes) {
      for (int transposes = 0; transposes < 4; ++transposes) {
        for (const bool accumulate : {false, true}) {
          Problem p = make_problem(shape[0], shape[1], shape[2], transposes, accumulate, accumulate ? 5 : 0);
          p.g.compute = Compute::i16;
          const std::vector<float> result = run(cpu_table(portable), p);
          const Difference same = difference(p, result, exact(p, Compute::i16)), original = difference(p, result, exact(p, Compute::f32));
          ASSERT_LT(same.root_mean_square, 2e-6) << describe(p, cpu_table(portable));
          ASSERT_LT(same.worst, 3e-5) << describe(p, cpu_table(portable));
          ASSERT_LT(original.root_mean_square, 1.2e-5) << describe(p, cpu_table(portable));
          if (p.g.whole()) {
            ASSERT_GT(original.root_mean_square, 4e-6) << describe(p, cpu_table(portable)) << ": were these whole numbers at all?";
          }
        }
      }
    }
  }
}

// Rows of one value have the largest sums that the scale allows, and all their roundings go one way: by 1/4066 at most each, k being 512.
// A lone value is the largest number. An overflow would err by more than the product.
TEST_P(WholeNumbers, NeitherFullNorSparseRowsOverflow) {
  for (const std::int64_t k : {64, 511, 512, 513, 1024, 4096}) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      for (const float value : {1.0F, -1.0F, 3e-7F, 1e12F}) {
        Problem p = make_problem(14, 66, k, transposes, false, 0);
        p.g.compute = Compute::i16;
        std::fill(p.a.begin(), p.a.end(), value);
        std::fill(p.b.begin(), p.b.end(), 2.0F);
        ASSERT_LT(difference(p, run(cpu_table(), p), exact(p, Compute::f32)).worst, 5e-4) << describe(p, cpu_table()) << " " << value;
        std::fill(p.a.begin(), p.a.end(), 0.0F);
        for (std::int64_t i = 0; i < p.g.m; ++i) p.a[static_cast<std::size_t>(p.g.transpose_a ? i : i * p.g.lda)] = value;
        ASSERT_LT(difference(p, run(cpu_table(), p), exact(p, Compute::f32)).worst, 5e-4) << describe(p, cpu_table()) << " " << value;
      }
    }
  }
}

// Squares of the smallest values that count may be denormal, which training flushes to zero: the norm must hold all the same.
TEST_P(WholeNumbers, TheSmallestNormsDoNotOverflowWhenDenormalsAreFlushed) {
  const base::Arithmetic restored(base::arithmetic());
  base::flush_denormals();
  for (const float small : {1.08e-19F, 1.08e-18F, 1e-17F, 1e-16F, 1e-15F}) {
    Problem p = make_problem(3, 64, 512, 2, false, 0);
    p.g.compute = Compute::i16;
    std::fill(p.a.begin(), p.a.end(), small);
    for (std::int64_t i = 0; i < p.g.m; ++i) p.a[static_cast<std::size_t>(i * p.g.lda)] = 10 * small;
    std::fill(p.b.begin(), p.b.end(), 1.0F);
    const std::vector<float> c = run(cpu_table(), p);
    const double expected = 521 * static_cast<double>(small);
    for (std::int64_t j = 0; j < p.g.n; ++j) {
      const auto value = static_cast<double>(c[static_cast<std::size_t>(j)]);
      if (value != 0) {
        ASSERT_NEAR(value, expected, 2e-3 * expected) << small;
      }
      ASSERT_TRUE(value != 0 || small < 1e-17F) << small;
    }
  }
}

// Inside the parallel region of hidden every thread has its own packing, and the threads' sums one order.
TEST_P(WholeNumbers, TheHiddenLayerMatchesTheReferenceOnTwoThreads) {
  const Hidden shape{.rows = 601, .k = 64, .f = 700, .r = 70, .compute = Compute::i16};
  const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  const auto x = random_values(count(shape.rows, shape.k), 1), v = random_values(count(shape.f, shape.k), 2),
             u = random_values(count(shape.f, shape.r), 3), dy = random_values(count(shape.rows, shape.r), 4);
  struct Results {
    std::vector<float> y, dx, dv, du;
  };
  const auto results = [&](const OpTable<float>& table, Compute compute) {
    Hidden s = shape;
    s.compute = compute;
    Results all{std::vector<float>(dy.size()), std::vector<float>(x.size()), std::vector<float>(v.size()), std::vector<float>(u.size())};
    table.hidden(s, x.data(), v.data(), u.data(), all.y.data());
    table.hidden_backward(s, x.data(), v.data(), u.data(), dy.data(), all.dx.data(), all.dv.data(), all.du.data());
    return all;
  };
  const auto worst = [](const std::vector<float>& a, const std::vector<float>& b) {
    double most = 0, largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
      largest = std::max(largest, std::abs(static_cast<double>(b[i])));
    }
    return most / largest;
  };
  const Results exact = results(reference_table<float>(), Compute::f32), whole = results(cpu_table(), Compute::i16),
                again = results(cpu_table(), Compute::i16);
  for (const auto part : {&Results::y, &Results::dx, &Results::dv, &Results::du}) {
    EXPECT_LT(worst(whole.*part, exact.*part), 5e-4);
    EXPECT_GT(worst(whole.*part, exact.*part), 1e-6) << "were these whole numbers at all?";
    EXPECT_EQ(whole.*part, again.*part);
  }
}

TEST_P(WholeNumbers, ZerosStayZeroAndWhatIsNotFiniteShows) {
  for (int transposes = 0; transposes < 4; ++transposes) {
    Problem p = make_problem(30, 70, 600, transposes, false, 0);
    p.g.compute = Compute::i16;
    const auto a = [&](std::int64_t i, std::int64_t q) -> float& {
      return p.a[static_cast<std::size_t>(p.g.transpose_a ? q * p.g.lda + i : i * p.g.lda + q)];
    };
    for (std::int64_t q = 0; q < p.g.k; ++q) {
      a(3, q) = 0;
      a(5, q) *= 1e-20F;  // below the smallest norm
    }
    a(7, 599) = std::nanf("");
    a(8, 0) = HUGE_VALF;
    a(9, 300) = 1e30F;  // its square is not finite
    const std::vector<float> c = run(cpu_table(), p);
    for (std::int64_t i = 0; i < p.g.m; ++i) {
      for (std::int64_t j = 0; j < p.g.n; ++j) {
        const float value = c[static_cast<std::size_t>(i * p.g.ldc + j)];
        if (i == 3 || i == 5) {
          ASSERT_EQ(value, 0) << i;
        } else if (i >= 7 && i <= 9) {
          ASSERT_TRUE(std::isnan(value)) << i;
        } else {
          ASSERT_TRUE(std::isfinite(value) && value != 0) << i;
        }
      }
    }
  }
}

TEST_P(WholeNumbers, ARowHasTheSameBitsWhateverStandsBesideItAndForEveryThreadCount) {
  for (int transposes = 0; transposes < 4; ++transposes) {
    Problem whole = make_problem(200, 96, 600, transposes, true, 0);
    whole.g.compute = Compute::i16;
    const std::vector<float> all = run(cpu_table(), whole);
    for (const int threads : {1, 2, 3, 7}) {
      base::set_threads(threads);
      for (const std::int64_t m : {1, 5, 12, 13, 100, 200}) {
        Problem part = whole;
        part.g.m = m;
        const std::vector<float> few = run(cpu_table(), part);
        ASSERT_TRUE(std::equal(few.begin(), few.begin() + m * 96, all.begin())) << m << " rows, " << threads << " threads";
      }
    }
  }
}

TEST_F(Gemms, WholeNumbersAreRefusedAtALowerLevel) {
  set_cpu_level("scalar");
  Problem p = make_problem(4, 64, 64, 0, false, 0);
  p.g.compute = Compute::i16;
  EXPECT_THROW(run(cpu_table(), p), std::exception);
  p.g.n = p.g.ldc = 63;
  EXPECT_NO_THROW(run(cpu_table(), p)) << "narrow products are f32";
}

TEST_F(Gemms, UnknownOrUnavailableLevelsAreRefusedWithTheChoices) {
  try {
    set_cpu_level("avx1024");
    FAIL() << "accepted";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("scalar"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace dormouse::ops
