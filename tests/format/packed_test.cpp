#include "format/packed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace dormouse::format {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

struct Owned {
  Packed packed;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  PackStats stats;
  std::int64_t bad = -1;
};

Owned packed(const PackedShape& shape, const std::vector<float>& values) {
  Owned out;
  out.codes.resize(shape.code_bytes());
  out.scales.resize(static_cast<std::size_t>(shape.scale_count()));
  out.bad = pack(shape, values, out.codes, out.scales, out.stats);
  out.packed = {"x", shape, out.codes, out.scales};
  return out;
}

std::vector<float> widened(const Owned& owned) {
  std::vector<float> out(static_cast<std::size_t>(owned.packed.shape.size()));
  widen({"x", owned.packed.shape, owned.codes, owned.scales}, out);
  return out;
}

std::string fault(const Owned& owned) { return fault_of({"x", owned.packed.shape, owned.codes, owned.scales}); }

TEST(PackedTest, F32KeepsEveryBit) {
  const std::vector<float> values{0.0F, -0.0F, 1e-45F, -1e-39F, 3.4028235e38F, 1.0F / 3};
  const Owned owned = packed({{2, 3}, Storage::f32, Scales::none}, values);
  EXPECT_EQ(std::memcmp(widened(owned).data(), values.data(), 24), 0);
  EXPECT_EQ(owned.stats.flushed, 0);
  EXPECT_EQ(owned.stats.max_abs, 3.4028235e38F);
  EXPECT_EQ(owned.stats.min_nonzero_abs, 1e-45F);
}

TEST(PackedTest, HalvesRoundToNearestEvenKeepSubnormalsAndCountWhatTheyFlush) {
  // 1 + 2^-8 lies between two bf16 values and goes to the even one; 1e-41 is a subnormal of bf16; 1e-8 is below f16's smallest.
  const Owned bf16 = packed({{4}, Storage::bf16, Scales::none}, {1.00390625F, 1.01171875F, 1e-40F, 1e-42F});
  EXPECT_EQ(widened(bf16), (std::vector<float>{1.0F, 1.015625F, base::f32_from_bf16(base::bf16_from_f32(1e-40F)), 0.0F}));
  EXPECT_GT(widened(bf16)[2], 0.0F);
  EXPECT_EQ(bf16.stats.flushed, 1);
  const Owned f16 = packed({{3}, Storage::f16, Scales::none}, {65504.0F, -5.9604645e-8F, 1e-8F});
  EXPECT_EQ(widened(f16), (std::vector<float>{65504.0F, -5.9604645e-8F, 0.0F}));
  EXPECT_EQ(f16.stats.flushed, 1);
  EXPECT_EQ(f16.stats.min_nonzero_abs, 5.9604645e-8F);
}

TEST(PackedTest, ValuesThatAreNotOrDoNotStayFiniteAreNamed) {
  EXPECT_EQ(packed({{3}, Storage::f16, Scales::none}, {1, 70000, 2}).bad, 1);
  EXPECT_EQ(packed({{3}, Storage::bf16, Scales::none}, {1, 70000, 2}).bad, -1);
  EXPECT_EQ(packed({{3}, Storage::bf16, Scales::none}, {1, 2, 3.4e38F}).bad, 2);
  for (const float value : {kNan, kInf, -kInf}) {
    for (const Storage storage : {Storage::f32, Storage::f16, Storage::bf16})
      EXPECT_EQ(packed({{2}, storage, Scales::none}, {1, value}).bad, 1);
    for (const Storage storage : {Storage::int8, Storage::ternary}) EXPECT_EQ(packed({{1, 2}, storage, Scales::rows}, {1, value}).bad, 1);
  }
}

TEST(PackedTest, Int8TakesTheLargestOfEachOutputAs127) {
  const std::vector<float> values{127, 0.5F, 1.5F, -254, 0, 2.9F};
  const Owned columns = packed({{2, 3}, Storage::int8, Scales::columns}, values);
  EXPECT_EQ(columns.scales, (std::vector<float>{2, static_cast<float>(0.5 / 127), static_cast<float>(2.9F / 127.0)}));
  EXPECT_EQ(columns.codes, (std::vector<std::uint8_t>{64, 127, 66, 0x81, 0, 127}));
  const Owned rows = packed({{2, 3}, Storage::int8, Scales::rows}, values);
  EXPECT_EQ(rows.scales, (std::vector<float>{1, 2}));
  EXPECT_EQ(rows.codes, (std::vector<std::uint8_t>{127, 0, 2, 0x81, 0, 1}));  // 0.5 and 1.5 to the even neighbour
  EXPECT_EQ(widened(rows), (std::vector<float>{127, 0, 2, -254, 0, 2}));
  EXPECT_EQ(rows.stats.flushed, 1);
  EXPECT_EQ(fault(rows), "");
}

TEST(PackedTest, AnOutputOfZerosOrBelowTheSmallestScaleIsZero) {
  for (const Storage storage : {Storage::int8, Storage::ternary}) {
    const Owned owned = packed({{3, 2}, storage, Scales::columns}, {0, 1e-44F, 0, 1e-44F, 0, 0});
    EXPECT_EQ(owned.scales, (std::vector<float>{0, 0}));
    EXPECT_EQ(widened(owned), std::vector<float>(6));
    EXPECT_EQ(owned.stats.flushed, 2);
    EXPECT_EQ(owned.stats.max_abs, 0.0F);
    EXPECT_EQ(fault(owned), "");
  }
}

TEST(PackedTest, TernaryOutputsLoseNothingAndTheirCodesLieAsDocumented) {
  // 18 columns: two words a row. Column 0: 0 and +-0.3, column 17: -2.
  std::vector<float> values(2 * 18);
  values[0] = 0.3F;
  values[1] = -0.7F;
  values[17] = -2;
  values[18] = -0.3F;
  values[18 + 16] = 5;
  const Owned owned = packed({{2, 18}, Storage::ternary, Scales::columns}, values);
  EXPECT_EQ(widened(owned), values);
  EXPECT_EQ(owned.stats.inexact, 0);
  EXPECT_EQ(owned.codes, (std::vector<std::uint8_t>{0b1101, 0, 0, 0, 0b1100, 0, 0, 0, 0b11, 0, 0, 0, 0b01, 0, 0, 0}));
  EXPECT_EQ(fault(owned), "");
}

TEST(PackedTest, OtherOutputsAreRoundedAtSevenTenthsOfTheirMean) {
  // Mean |w| 1, threshold 0.7: 0.7 itself is dropped, the kept ones have mean 1.65.
  const Owned owned = packed({{1, 4}, Storage::ternary, Scales::rows}, {0.7F, 0, -1.2F, 2.1F});
  EXPECT_EQ(owned.stats.inexact, 1);
  EXPECT_EQ(widened(owned), (std::vector<float>{0, 0, -1.65F, 1.65F}));
  EXPECT_EQ(owned.stats.flushed, 1);
}

TEST(PackedTest, CodesAndScalesTheFormatDoesNotKnowAreNamed) {
  Owned owned = packed({{2, 3}, Storage::int8, Scales::columns}, {1, 2, 3, 4, 5, 6});
  owned.codes[4] = 0x80;
  EXPECT_NE(fault(owned).find("-128 at element 4"), std::string::npos) << fault(owned);
  for (const float scale : {-1.0F, -0.0F, kNan, kInf, 1e-40F, 1e37F}) {
    owned = packed({{2, 3}, Storage::int8, Scales::columns}, {1, 2, 3, 4, 5, 6});
    owned.scales[1] = scale;
    EXPECT_NE(fault(owned).find("column 1"), std::string::npos) << scale;
  }
  owned = packed({{2, 3}, Storage::int8, Scales::rows}, {1, 2, 3, 4, 5, 6});
  owned.scales[1] = 0;
  EXPECT_NE(fault(owned).find("[1,0]"), std::string::npos) << fault(owned);
  owned = packed({{2, 3}, Storage::ternary, Scales::rows}, {1, 1, 1, 1, 1, 1});
  owned.codes[4] = 0b10;
  EXPECT_NE(fault(owned).find("code 10 in byte 4"), std::string::npos) << fault(owned);
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}, std::size_t{7}}) {
    owned = packed({{2, 3}, Storage::ternary, Scales::rows}, {1, 1, 1, 1, 1, 1});
    owned.codes[at] = static_cast<std::uint8_t>(owned.codes[at] | 0x40);
    EXPECT_NE(fault(owned).find("beyond its last column in byte " + std::to_string(at)), std::string::npos) << fault(owned);
  }
  for (const Storage storage : {Storage::f32, Storage::f16, Storage::bf16}) {
    owned = packed({{3}, storage, Scales::none}, {1, 2, 3});
    std::fill(owned.codes.end() - (storage == Storage::f32 ? 4 : 2), owned.codes.end(), std::uint8_t{0x7f});
    if (storage == Storage::f32) owned.codes[10] = 0x80;  // 0x7f807f7f: a NaN
    if (storage == Storage::bf16) owned.codes[4] = 0x80;  // infinity
    EXPECT_NE(fault(owned).find("at element 2"), std::string::npos) << name_of(storage);
  }
}

TEST(PackedTest, CountsBeyondWhatAFileCanHoldAreNotCountable) {
  EXPECT_TRUE(is_countable({{1 << 20, 1 << 20}, Storage::f32, Scales::none}));
  EXPECT_FALSE(is_countable({{std::int64_t{1} << 32, std::int64_t{1} << 32}, Storage::f32, Scales::none}));
  EXPECT_FALSE(is_countable({{std::numeric_limits<std::int64_t>::max()}, Storage::int8, Scales::none}));
  EXPECT_FALSE(is_countable({{3, 0}, Storage::f32, Scales::none}));
  EXPECT_FALSE(is_countable({{-1}, Storage::f32, Scales::none}));
  EXPECT_FALSE(is_countable({{}, Storage::f32, Scales::none}));
}

}  // namespace
}  // namespace dormouse::format
