// The op matrix: every op x odd sizes x kinds of input x every column at every CPU level, against the f64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/threads.h"
#include "cases.h"
#include "ops/cpu_level.h"
#include "sanitizer.h"

namespace dormouse::ops {
namespace {

using cases::Case;
using cases::Draw;
using cases::Kind;
using cases::Plan;

struct Size {
  std::int64_t rows, cols;
  bool every_kind;                                                              // all kinds of input, not the normal one only
  bool null_gradients;                                                          // also with each gradient not wanted in turn
  bool slow() const { return tests::kAddressSanitizer && rows * cols > 1000; }  // minutes
};
constexpr Size kSizes[] = {{1, 1, true, false},  {3, 7, true, true},     {5, 64, true, false},    {33, 768, true, false},
                           {0, 8, false, false}, {130, 96, false, true}, {259, 33, false, false}, {1030, 17, false, false}};

constexpr std::pair<Kind, const char*> kKinds[] = {
    {Kind::normal, "normal"}, {Kind::huge, "huge"}, {Kind::constant, "constant"}, {Kind::zero, "zero"}, {Kind::denormal, "denormal"}};

// A buffer between two guards, so that a write outside is seen.
template <class T>
class Guarded {
 public:
  explicit Guarded(const std::vector<double>& values) : storage_(values.size() + 2 * kGuard, kMark) {
    for (std::size_t i = 0; i < values.size(); ++i) storage_[kGuard + i] = static_cast<T>(values[i]);
  }
  T* data() { return storage_.data() + kGuard; }
  std::size_t size() const { return storage_.size() - 2 * kGuard; }
  bool intact() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (storage_[i] != kMark || storage_[storage_.size() - 1 - i] != kMark) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 16;
  static constexpr T kMark = T(-12345.5);
  std::vector<T> storage_;
};

// Runs the plan on one column; the gradient `without` (an index or -1) is passed as null.
template <class T, class Run>
std::vector<Guarded<T>> execute(const Plan& plan, int without, const Run& run) {
  std::vector<Guarded<T>> buffers;
  for (const Plan::Buffer& b : plan.buffers) buffers.emplace_back(b.initial);
  std::vector<T*> pointers;
  for (std::size_t i = 0; i < buffers.size(); ++i) pointers.push_back(static_cast<int>(i) == without ? nullptr : buffers[i].data());
  run(pointers);
  return buffers;
}

std::vector<Guarded<float>> execute(const Plan& plan, int without, const OpTable<float>& table) {
  return execute<float>(plan, without, [&](const std::vector<float*>& b) { plan.run_f32(table, b); });
}

// oneDNN multiplies bf16 where the processor does.
bool has_column(const Case& op, bool portable) { return portable || op.compute != Compute::bf16 || native_bf16(); }

// Columns to compare, best CPU level first because oneDNN keeps the first level it sees.
template <class Body>
void for_each_column(const Case& op, const Size& size, const Body& body) {
  body(reference_table<float>(), "reference f32");
  std::vector<std::string> levels = available_cpu_levels();
  std::reverse(levels.begin(), levels.end());
  for (const std::string& level : levels) {
    if (level == "scalar" && size.slow()) continue;
    set_cpu_level(level);
    for (const bool portable : {false, true}) {
      if (!has_column(op, portable)) continue;
      const OpTable<float>& table = cpu_table(portable);
      body(table, std::string(table.name) + " " + level);
    }
  }
  set_cpu_level("");
}

// The first disagreement, or "".
std::string compare(const Case& op, Kind kind, const Plan& plan, std::vector<Guarded<double>>& want, std::vector<Guarded<float>>& got) {
  const double floor = kind == Kind::denormal ? op.denormal_floor : 1e-37;
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Plan::Buffer& b = plan.buffers[i];
    if (!got[i].intact()) return "wrote outside " + b.name;
    const auto row = static_cast<std::size_t>(std::max<std::int64_t>(b.row, 1));
    for (std::size_t begin = 0; begin < b.initial.size(); begin += row) {
      const std::size_t end = std::min(begin + row, b.initial.size());
      double largest = 0;
      for (std::size_t j = begin; j < end; ++j) largest = std::max(largest, std::abs(want[i].data()[j]));
      for (std::size_t j = begin; j < end; ++j) {
        const double expected = want[i].data()[j], value = static_cast<double>(got[i].data()[j]);
        const double allowed = b.checked ? op.tolerance * (std::abs(expected) + largest + b.scale) + floor : 0.0;
        if (std::abs(value - expected) <= allowed) continue;
        char text[200];
        std::snprintf(text, sizeof text, "%s[%zu] is %.9g, the reference says %.9g, allowed error %.3g", b.name.c_str(), j, value, expected,
                      allowed);
        return text;
      }
    }
  }
  return "";
}

class OpMatrix : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { base::set_threads(0); }
};

TEST_P(OpMatrix, EveryColumnAgreesWithTheReference) {
  const Case& op = GetParam();
  for (const Size& size : kSizes) {
    for (const auto& entry : kKinds) {
      const Kind kind = entry.first;
      if (kind != Kind::normal && (!size.every_kind || size.slow())) continue;
      Draw draw(kind, 1000 + static_cast<std::uint64_t>(size.rows * 7 + size.cols));
      const Plan plan = op.plan(draw, size.rows, size.cols);
      std::vector<int> variants{-1};
      if (kind == Kind::normal && size.null_gradients) {
        for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
          if (plan.buffers[i].gradient) variants.push_back(static_cast<int>(i));
        }
      }
      for (const int without : variants) {
        std::vector<Guarded<double>> want =
            execute<double>(plan, without, [&](const std::vector<double*>& b) { plan.run_f64(reference_table<double>(), b); });
        for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
          for (std::size_t j = 0; j < want[i].size(); ++j) {
            ASSERT_TRUE(std::isfinite(want[i].data()[j])) << "the case itself is not finite: " << plan.buffers[i].name << "[" << j << "]";
          }
        }
        for_each_column(op, size, [&](const OpTable<float>& table, const std::string& column) {
          std::vector<Guarded<float>> got = execute(plan, without, table);
          EXPECT_EQ(compare(op, kind, plan, want, got), "")
              << op.name << " " << size.rows << "x" << size.cols << " " << entry.second << " inputs, column " << column
              << (without < 0 ? "" : ", without " + plan.buffers[static_cast<std::size_t>(without)].name);
        });
        if (HasFailure()) return;
      }
    }
  }
}

// More threads than a machine of two cores has, and than there are pieces of work: whoever gets none, nothing is lost.
TEST_P(OpMatrix, AgreesWithTheReferenceOnThreeSevenAndTwelveThreads) {
  const Case& op = GetParam();
  for (const Size& size : {Size{70, 65, false, false}, Size{259, 33, false, false}}) {
    Draw draw(Kind::normal, 5);
    const Plan plan = op.plan(draw, size.rows, size.cols);
    std::vector<Guarded<double>> want =
        execute<double>(plan, -1, [&](const std::vector<double*>& b) { plan.run_f64(reference_table<double>(), b); });
    for (const int threads : {3, 7, 12}) {
      base::set_threads(threads);
      for (const bool portable : {false, true}) {
        if (!has_column(op, portable)) continue;
        std::vector<Guarded<float>> got = execute(plan, -1, cpu_table(portable));
        EXPECT_EQ(compare(op, Kind::normal, plan, want, got), "") << op.name << " " << size.rows << "x" << size.cols << ", " << threads;
      }
    }
    base::set_threads(0);
  }
}

TEST_P(OpMatrix, TheSameCallTwiceGivesTheSameBits) {
  const Case& op = GetParam();
  for (const Size& size : {Size{33, 768, false, false}, Size{259, 33, false, false}}) {
    Draw draw(Kind::normal, 5);
    const Plan plan = op.plan(draw, size.rows, size.cols);
    for (const bool portable : {false, true}) {
      if (!has_column(op, portable)) continue;
      std::vector<Guarded<float>> first = execute(plan, -1, cpu_table(portable));
      std::vector<Guarded<float>> second = execute(plan, -1, cpu_table(portable));
      for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
        ASSERT_EQ(std::memcmp(first[i].data(), second[i].data(), first[i].size() * sizeof(float)), 0)
            << op.name << ", " << plan.buffers[i].name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, OpMatrix, testing::ValuesIn(cases::all_cases()),
                         [](const testing::TestParamInfo<Case>& instance) { return instance.param.name; });

TEST(PortableColumn, ARowsBitsDoNotDependOnTheRowsBesideIt) {
  base::set_threads(0);
  const OpTable<float>& table = cpu_table(true);
  for (const bool transpose_b : {false, true}) {
    constexpr std::int64_t kRows = 37, kOut = 51, kIn = 203;
    Draw draw(Kind::normal, 6);
    std::vector<float> a, b;
    for (const double x : draw.normal(kRows * kIn)) a.push_back(static_cast<float>(x));
    for (const double x : draw.normal(kIn * kOut)) b.push_back(static_cast<float>(x));
    std::vector<float> together(kRows * kOut), alone(kRows * kOut);
    Gemm g{.m = kRows, .n = kOut, .k = kIn, .lda = kIn, .ldb = transpose_b ? kIn : kOut, .ldc = kOut, .transpose_b = transpose_b};
    table.gemm(g, a.data(), b.data(), together.data());
    g.m = 1;
    for (std::int64_t r = 0; r < kRows; ++r) table.gemm(g, a.data() + r * kIn, b.data(), alone.data() + r * kOut);
    EXPECT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0) << transpose_b;
  }
}

}  // namespace
}  // namespace dormouse::ops
