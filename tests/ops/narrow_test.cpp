// Narrow matrices and their products, against the f64 reference at every CPU level.
#include "ops/narrow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "base/random.h"
#include "base/threads.h"
#include "ops/cpu_level.h"
#include "ops/gemm.h"
#include "ops/ops.h"
#include "sanitizer.h"

namespace dormouse::ops {
namespace {

constexpr Narrow kTypes[] = {Narrow::f32, Narrow::bf16, Narrow::int8, Narrow::ternary};
constexpr std::int64_t kDepths[] = {1, 3, 15, 16, 17, 64, 100, 513, 1027, 2048}, kWidths[] = {1, 12, 31, 32, 33, 64, 100, 768};
bool is_slow(std::int64_t k, std::int64_t n) { return k * n > 300'000; }  // of the reference

bool has_codes(Narrow type) { return type == Narrow::int8 || type == Narrow::ternary; }

// A matrix and its widened values, [k,n].
struct Sample {
  NarrowMatrix w;
  std::vector<float> wide;
  double sum_abs(std::int64_t j) const {
    double sum = 0;
    for (std::int64_t i = 0; i < w.k(); ++i) sum += std::abs(static_cast<double>(wide[static_cast<std::size_t>(i * w.n() + j)]));
    return sum;
  }
};

Sample sample(Narrow type, std::int64_t k, std::int64_t n, Stored stored = Stored::straight, std::uint64_t seed = 1) {
  base::SplitMix64 random(seed);
  const auto size = static_cast<std::size_t>(k * n);
  std::vector<float> wide(size), scales(static_cast<std::size_t>(n));
  std::vector<float> values(size);
  std::vector<std::uint16_t> halves(size);
  std::vector<std::int8_t> codes(size);
  for (float& scale : scales) scale = static_cast<float>(0.01 + 0.1 * random.uniform());
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const auto from = static_cast<std::size_t>(i * n + j), to = stored == Stored::straight ? from : static_cast<std::size_t>(j * k + i);
      const auto value = static_cast<float>(random.normal());
      const int code = static_cast<int>(type == Narrow::int8 ? random.below(255) : random.below(3)) - (type == Narrow::int8 ? 127 : 1);
      values[to] = value;
      halves[to] = base::bf16_from_f32(value);
      codes[to] = static_cast<std::int8_t>(code);
      wide[from] = type == Narrow::f32    ? value
                   : type == Narrow::bf16 ? base::f32_from_bf16(halves[to])
                                          : static_cast<float>(code) * scales[static_cast<std::size_t>(j)];
    }
  }
  if (type == Narrow::f32) return {{k, n, values.data(), stored}, wide};
  if (type == Narrow::bf16) return {{k, n, halves.data(), stored}, wide};
  return {{type, k, n, codes.data(), stored, scales}, wide};
}

std::vector<float> normal(std::int64_t count, std::uint64_t seed) {
  base::SplitMix64 random(seed);
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x) value = static_cast<float>(random.normal());
  return x;
}

// y [rows,n] of x [rows,k]. A write beyond it is seen.
std::vector<float> product(const NarrowMatrix& w, std::int64_t rows, const float* x, Sweep sweep = Sweep::forward) {
  constexpr float kMark = -12345.5F;
  constexpr std::size_t kGuard = 64;
  const auto size = static_cast<std::size_t>(rows * w.n());
  std::vector<float> y(size + kGuard, kMark);
  const Product<float> one{&w, x, y.data()};
  cpu_table(true).products(rows, {&one, 1}, sweep);
  EXPECT_TRUE(std::all_of(y.begin() + static_cast<std::ptrdiff_t>(size), y.end(), [](float value) { return value == kMark; }));
  y.resize(size);
  return y;
}

std::vector<double> reference_product(const NarrowMatrix& w, std::int64_t rows, const std::vector<float>& x) {
  const std::vector<double> wide(x.begin(), x.end());
  std::vector<double> y(static_cast<std::size_t>(rows * w.n()));
  const Product<double> one{&w, wide.data(), y.data()};
  reference_table<double>().products(rows, {&one, 1}, Sweep::forward);
  return y;
}

double norm_of(std::int64_t count, std::int64_t stride, const float* x) {
  double squares = 0;
  for (std::int64_t i = 0; i < count; ++i) squares += static_cast<double>(x[i * stride]) * static_cast<double>(x[i * stride]);
  return std::sqrt(squares);
}

// Between two whole numbers of a block (ops/gemm.h).
double i16_step(std::int64_t count, std::int64_t stride, const float* x) {
  double most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(static_cast<double>(x[i * stride])));
  return std::max(norm_of(count, stride, x) / static_cast<double>(kI16Norm), most / static_cast<double>(kI16Largest));
}

// f32: 1e-5 of sum |x w|, which a lost term of k = 2048 equal ones exceeds by far. Codes: the rounding of x to 16 bits, 1.6e-5 of
// max |x| sum |w|, and that of the sum. bf16: seven standard deviations of roundings of x that
// know nothing of w, at most half a step each, and those of the sum: two swapped neighbours of a normal row exceed it.
std::vector<double> tolerances(const Sample& s, std::int64_t rows, const std::vector<float>& x) {
  const std::int64_t k = s.w.k(), n = s.w.n();
  std::vector<double> out(static_cast<std::size_t>(rows * n), 1e-37);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x.data() + r * k;
    double most = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      most = std::max(most, std::abs(static_cast<double>(row[i])));
      if (has_codes(s.w.type())) continue;
      for (std::int64_t j = 0; j < n; ++j)
        out[static_cast<std::size_t>(r * n + j)] +=
            (s.w.type() == Narrow::f32 ? 1e-5 : 1e-6) *
            std::abs(static_cast<double>(row[i]) * static_cast<double>(s.wide[static_cast<std::size_t>(i * n + j)]));
    }
    for (std::int64_t j = 0; j < n && has_codes(s.w.type()); ++j) out[static_cast<std::size_t>(r * n + j)] += 4e-5 * most * s.sum_abs(j);
    for (std::int64_t j = 0; j < n && s.w.type() == Narrow::bf16; ++j) {
      const I16Blocks blocks(k);
      double squares = 0;
      for (std::int64_t block = 0; block < blocks.count; ++block) {
        const std::int64_t first = block * blocks.size, depth = blocks.depth(block);
        const double step = i16_step(depth, 1, row + first), norm = norm_of(depth, n, s.wide.data() + first * n + j);
        squares += step * step * norm * norm;
      }
      out[static_cast<std::size_t>(r * n + j)] += 7 / std::sqrt(12.0) * std::sqrt(squares);
    }
  }
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, const std::vector<double>& tolerance,
                 const std::string& what) {
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(static_cast<double>(got[i]), want[i], tolerance[i]) << what << " element " << i;
}

bool same_bits(const float* a, const float* b, std::size_t count) { return std::memcmp(a, b, count * sizeof(float)) == 0; }
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), a.size());
}

class NarrowTest : public ::testing::Test {
 protected:
  void TearDown() override {
    set_cpu_level("");
    base::set_threads(threads_);
  }
  template <class Body>
  void at_every_level(const Body& body) {
    for (const std::string& level : available_cpu_levels()) {
      set_cpu_level(level);
      body(level);
    }
  }
  const int threads_ = base::threads();
};

TEST_F(NarrowTest, EveryElementComesBackWidenedHoweverItWasStored) {
  for (const Narrow type : kTypes) {
    for (const Stored stored : {Stored::straight, Stored::transposed}) {
      for (const std::int64_t k : kDepths) {
        for (const std::int64_t n : kWidths) {
          if (is_slow(k, n)) continue;
          const Sample s = sample(type, k, n, stored);
          ASSERT_EQ(s.w.type(), type);
          ASSERT_EQ(s.w.k(), k);
          ASSERT_EQ(s.w.n(), n);
          const I16Blocks blocks(k);
          for (std::int64_t j = 0; j < n; ++j) {
            double step = 0;  // of bf16, which is rounded to whole numbers
            for (std::int64_t i = 0; i < k; ++i) {
              const float* wide = s.wide.data() + i * n + j;
              if (type == Narrow::bf16 && i % blocks.size == 0) step = i16_step(blocks.depth(i / blocks.size), n, wide);
              ASSERT_NEAR(static_cast<double>(s.w.value(i, j)), static_cast<double>(*wide), step * 0.51)
                  << name_of(type) << " [" << k << "," << n << "] " << i << "," << j;
            }
          }
        }
      }
    }
  }
}

TEST_F(NarrowTest, ElementsTakeTheBitsOfTheirType) {
  EXPECT_EQ(sample(Narrow::f32, 64, 96).w.bytes(), 64U * 96 * 4);
  EXPECT_EQ(sample(Narrow::bf16, 64, 96).w.bytes(), 64U * 96 * 2 + 96 * 4);
  EXPECT_EQ(sample(Narrow::int8, 64, 96).w.bytes(), 64U * 96 + 96 * 4);
  EXPECT_EQ(sample(Narrow::ternary, 64, 96).w.bytes(), 64U * 96 / 4 + 96 * 4);
}

TEST_F(NarrowTest, ProductsOfEveryShapeAreThoseOfTheReferenceAndRowsDoNotSeeEachOther) {
  constexpr std::int64_t kRows = 17;
  for (const Narrow type : kTypes) {
    for (const std::int64_t k : kDepths) {
      const std::vector<float> x = normal(kRows * k, 2);
      for (const std::int64_t n : kWidths) {
        if (is_slow(k, n)) continue;
        const Sample s = sample(type, k, n);
        const std::string shape = std::string(name_of(type)) + " [" + std::to_string(k) + "," + std::to_string(n) + "] ";
        const auto want = reference_product(s.w, kRows, x), tolerance = tolerances(s, kRows, x);
        std::vector<float> lowest;  // of the lowest level
        at_every_level([&](const std::string& level) {
          if (tests::kAddressSanitizer && level == "scalar" && k * n > 10'000) return;  // slow
          const std::vector<float> all = product(s.w, kRows, x.data());
          expect_near(all, want, tolerance, shape + level);
          if (lowest.empty()) lowest = all;
          EXPECT_TRUE(!has_codes(type) || same_bits(all, lowest)) << shape << level;
          for (std::int64_t rows = 1; rows < 10; ++rows) {
            if (k * n > 100'000 && rows % 4 != 1) continue;
            const std::int64_t first = kRows - rows;
            const std::vector<float> some = product(s.w, rows, x.data() + first * k);
            EXPECT_TRUE(same_bits(some.data(), all.data() + first * n, some.size())) << shape << level << ", " << rows << " rows";
          }
        });
        if (k * n <= 100'000) {
          const std::vector<float> straight = product(s.w, kRows, x.data());
          EXPECT_TRUE(same_bits(product(sample(type, k, n, Stored::transposed).w, kRows, x.data()), straight)) << shape;
        }
      }
    }
  }
}

TEST_F(NarrowTest, NoBitDependsOnThreadsCompanyOrTheWayOfTheSweep) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{100, 300}, {100, 33}, {300, 200}, {64, 1}, {17, 768}};
  std::vector<Sample> samples;
  for (const Narrow type : kTypes)
    for (const auto& [k, n] : shapes) samples.push_back(sample(type, k, n, Stored::straight, samples.size()));
  const std::vector<float> shared = normal(5 * 100, 3), other = normal(5 * 300, 4);
  for (const std::int64_t rows : {1, 5}) {
    at_every_level([&](const std::string& level) {
      base::set_threads(1);
      std::vector<std::vector<float>> alone;
      std::vector<const float*> x;
      for (const Sample& s : samples) {  // products of 100 rows of weights share their x, as others of one length do
        x.push_back(s.w.k() == 300 ? other.data() : shared.data());
        alone.push_back(product(s.w, rows, x.back()));
      }
      for (const int threads : {1, 2, 3}) {
        base::set_threads(threads);
        for (const Sweep sweep : {Sweep::forward, Sweep::backward}) {
          std::vector<std::vector<float>> together;
          std::vector<Product<float>> list;
          for (const Sample& s : samples) together.emplace_back(static_cast<std::size_t>(rows * s.w.n()));
          for (std::size_t i = 0; i < samples.size(); ++i) list.push_back({&samples[i].w, x[i], together[i].data()});
          cpu_table(true).products(rows, list, sweep);
          for (std::size_t i = 0; i < samples.size(); ++i) {
            EXPECT_TRUE(same_bits(together[i], alone[i])) << level << ", " << threads << " threads, product " << i;
            EXPECT_TRUE(same_bits(product(samples[i].w, rows, x[i], sweep), alone[i])) << level << ", " << threads << " threads, alone";
          }
        }
      }
    });
  }
}

TEST_F(NarrowTest, AValueThatIsNotFiniteSpoilsItsRowAndNoOther) {
  const std::int64_t k = 100, n = 70, rows = 5;
  for (const Narrow type : kTypes) {
    const Sample s = sample(type, k, n);
    const std::vector<float> x = normal(rows * k, 5);
    at_every_level([&](const std::string& level) {
      const std::vector<float> whole = product(s.w, rows, x.data());
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
        for (const std::int64_t place : {std::int64_t{0}, k / 2, k - 1}) {
          std::vector<float> spoilt = x;
          spoilt[static_cast<std::size_t>(2 * k + place)] = bad;
          const std::vector<float> y = product(s.w, rows, spoilt.data());
          for (std::int64_t j = 0; j < n; ++j) {
            const float value = y[static_cast<std::size_t>(2 * n + j)];
            ASSERT_TRUE(type == Narrow::f32 ? !std::isfinite(value) : std::isnan(value)) << name_of(type) << " " << level << " " << bad;
          }
          EXPECT_TRUE(same_bits(y.data(), whole.data(), static_cast<std::size_t>(2 * n))) << name_of(type) << " " << level;
          EXPECT_TRUE(same_bits(y.data() + 3 * n, whole.data() + 3 * n, static_cast<std::size_t>(2 * n))) << name_of(type) << " " << level;
        }
      }
    });
  }
}

TEST_F(NarrowTest, ARowOfZerosGivesZeros) {
  for (const Narrow type : kTypes) {
    const Sample s = sample(type, 100, 70);
    for (const float zero : {0.0F, -0.0F}) {
      std::vector<float> x = normal(3 * 100, 6);
      std::fill_n(x.begin() + 100, 100, zero);
      at_every_level([&](const std::string& level) {
        const std::vector<float> y = product(s.w, 3, x.data());
        for (std::size_t j = 0; j < 70; ++j) EXPECT_EQ(y[70 + j], 0) << name_of(type) << " " << level;
      });
    }
  }
}

TEST_F(NarrowTest, ActivationsOfExtremeSizesStayFiniteAndRight) {
  const std::int64_t k = 64, n = 40, rows = 6;
  std::vector<float> x(static_cast<std::size_t>(rows * k), 1e-30F);
  x[5] = 1e30F;                               // row 0: one large among small ones
  std::fill_n(x.begin() + k, k, -1e30F);      // row 1
  std::fill_n(x.begin() + 3 * k, k, 1e-36F);  // row 3: 32512 / 1e-36 is no float
  x[static_cast<std::size_t>(4 * k)] = std::numeric_limits<float>::max() / 32;
  x[static_cast<std::size_t>(5 * k)] = std::numeric_limits<float>::denorm_min();
  for (const Narrow type : kTypes) {
    const Sample s = sample(type, k, n);
    const auto want = reference_product(s.w, rows, x);
    auto tolerance = tolerances(s, rows, x);
    for (double& one : tolerance) one += type == Narrow::f32 ? 0 : 2e-32;  // a row below 1e-33 counts as zeros; sum |w| < 1000
    at_every_level([&](const std::string& level) {
      const std::vector<float> y = product(s.w, rows, x.data());
      for (const float value : y) ASSERT_TRUE(std::isfinite(value)) << name_of(type) << " " << level;
      expect_near(y, want, tolerance, std::string(name_of(type)) + " " + level);
    });
  }
}

// Of a row whose largest value is 32512 the digits are its values, rounded to the nearest whole number, halves to the even one.
TEST_F(NarrowTest, HalvesRoundToTheEvenNumberAtEveryLevel) {
  const std::vector<float> x = {32512,   0.5F,   1.5F,  2.5F,   -0.5F,  -1.5F,  -2.5F, 127.5F, 128.5F, -127.5F,
                                -128.5F, 383.5F, 0.49F, -0.51F, -32512, 255.5F, 3.5F,  4.5F,   -3.5F,  -4.5F};
  const auto k = static_cast<std::int64_t>(x.size());
  const std::vector<float> scales(static_cast<std::size_t>(k), 1);
  std::vector<std::int8_t> one_each(static_cast<std::size_t>(k * k));  // the identity
  for (std::int64_t i = 0; i < k; ++i) one_each[static_cast<std::size_t>(i * k + i)] = 1;
  for (const Narrow type : {Narrow::int8, Narrow::ternary}) {
    const NarrowMatrix w(type, k, k, one_each.data(), Stored::straight, scales);
    at_every_level([&](const std::string& level) {
      const std::vector<float> y = product(w, 1, x.data());
      for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], std::nearbyint(x[i])) << name_of(type) << " " << level << " of " << x[i];
    });
  }
}

TEST_F(NarrowTest, SumsOfTheMostRowsFitAndMoreRowsAreRefused) {
  const std::int64_t k = NarrowMatrix::kMostCodes;
  const std::vector<float> scales = {1, 1};
  for (const Narrow type : {Narrow::int8, Narrow::ternary}) {
    const int most = type == Narrow::int8 ? 127 : 1;
    std::vector<std::int8_t> codes(static_cast<std::size_t>(2 * (k + 1)));
    std::fill_n(codes.begin(), k, static_cast<std::int8_t>(most));
    std::fill_n(codes.begin() + k, k, static_cast<std::int8_t>(-most));
    const NarrowMatrix w(type, k, 2, codes.data(), Stored::transposed, scales);
    for (const float size : {1.0F, -1.0F, 128.0F / 32512, -128.0F / 32512}) {  // the largest of either digit
      std::vector<float> x(static_cast<std::size_t>(k), size);
      x[0] = 1;
      at_every_level([&](const std::string& level) {
        const std::vector<float> y = product(w, 1, x.data());
        const double want = most * (1 + static_cast<double>(k - 1) * static_cast<double>(size));
        EXPECT_NEAR(static_cast<double>(y[0]), want, 1e-6 * std::abs(want)) << name_of(type) << " " << level << " " << size;
        EXPECT_NEAR(static_cast<double>(y[1]), -want, 1e-6 * std::abs(want)) << name_of(type) << " " << level << " " << size;
      });
    }
    try {
      const NarrowMatrix more(type, k + 1, 2, codes.data(), Stored::transposed, scales);
      FAIL() << "accepted";
    } catch (const base::Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(k + 1)), std::string::npos) << error.what();
    }
  }
}

TEST_F(NarrowTest, AValueWhoseInverseIsADenormalIsRead) {
  const std::uint16_t half = base::bf16_from_f32(0.5F);
  const NarrowMatrix w(1, 1, &half, Stored::straight);
  const float x = std::numeric_limits<float>::max() / 2;
  at_every_level([&](const std::string& level) { EXPECT_FLOAT_EQ(product(w, 1, &x)[0], x / 2) << level; });
}

// The largest sums are those of a row and a column in the same direction: about 46000^2 of 2^31 in every block. All roundings go one way
// then.
TEST_F(NarrowTest, SumsOfABlockFitWhenRowAndColumnPointTheSameWay) {
  for (const std::int64_t k : {1, 2, 3, 511, 512, 513, 1024, 1500}) {
    const std::vector<std::uint16_t> ones(static_cast<std::size_t>(k), base::bf16_from_f32(1.5F));
    const NarrowMatrix w(k, 1, ones.data(), Stored::straight);
    for (const float size : {3.0F, -3.0F, 1e-20F, 1e20F}) {
      const std::vector<float> x(static_cast<std::size_t>(k), size);
      at_every_level([&](const std::string& level) {
        const double want = 1.5 * static_cast<double>(size) * static_cast<double>(k);
        EXPECT_NEAR(static_cast<double>(product(w, 1, x.data())[0]), want, 7e-4 * std::abs(want)) << level << " " << k << " of " << size;
      });
    }
  }
}

TEST_F(NarrowTest, ReadingThroughReadsEveryMatrixToItsEnd) {
  base::set_threads(1);
  for (const Narrow type : kTypes) {
    const Sample a = sample(type, 128, 100), b = sample(type, 64, 33);
    at_every_level([&](const std::string& level) {
      const NarrowMatrix* const both[] = {&a.w, &b.w};
      const std::uint64_t sum = read_through(both);
      EXPECT_EQ(read_through(both), sum);
      EXPECT_NE(read_through(std::span(both).first(1)), sum) << name_of(type) << " " << level;
      EXPECT_NE(read_through(std::span(both).last(1)), sum) << name_of(type) << " " << level;
      for (const int threads : {2, 3}) {
        base::set_threads(threads);
        (void)read_through(both);
      }
      base::set_threads(1);
    });
  }
  EXPECT_EQ(read_through({}), 0U);
}

}  // namespace
}  // namespace dormouse::ops
