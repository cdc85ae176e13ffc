#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/threads.h"

namespace dormouse::base {
namespace {

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// The value of a finite f16 code from its definition.
double f16_value(std::uint16_t code) {
  const int exponent = (code >> 10) & 0x1f;
  const double fraction = (code & 0x3ff) / 1024.0;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15);
  return (code & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(F16, EveryCodeHasItsDefinedValueAndReturns) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const float value = f32_from_f16(half);
    if ((code & 0x7c00) != 0x7c00) {
      ASSERT_EQ(static_cast<double>(value), f16_value(half)) << code;
      ASSERT_EQ(std::signbit(value), (code & 0x8000) != 0) << code;
      ASSERT_EQ(f16_from_f32(value), half) << code;
    } else if ((code & 0x3ff) == 0) {
      ASSERT_TRUE(std::isinf(value)) << code;
      ASSERT_EQ(f16_from_f32(value), half) << code;
    } else {
      ASSERT_TRUE(std::isnan(value)) << code;
      ASSERT_EQ(f16_from_f32(value), half | 0x200) << code;  // the same NaN, quiet
    }
  }
}

TEST(F16, TiesGoToTheEvenCodeAndTheirNeighboursToTheNearest) {
  for (std::uint32_t code = 0; code < 0x7bff; ++code) {  // every pair of neighbouring finite codes
    const double middle = (f16_value(static_cast<std::uint16_t>(code)) + f16_value(static_cast<std::uint16_t>(code + 1))) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(tie), middle) << code;  // exact in f32
    const std::uint32_t even = (code & 1) == 0 ? code : code + 1;
    ASSERT_EQ(f16_from_f32(tie), even) << code;
    ASSERT_EQ(f16_from_f32(-tie), even | 0x8000) << code;
    const auto bits = std::bit_cast<std::uint32_t>(tie);
    ASSERT_EQ(f16_from_f32(from_bits(bits - 1)), code) << code;
    ASSERT_EQ(f16_from_f32(from_bits(bits + 1)), code + 1) << code;
  }
}

TEST(F16, LargeValuesBecomeInfinityFromTheTieOn) {
  EXPECT_EQ(f16_from_f32(65504.0F), 0x7bff);
  EXPECT_EQ(f16_from_f32(std::nextafter(65520.0F, 0.0F)), 0x7bff);
  EXPECT_EQ(f16_from_f32(65520.0F), 0x7c00);
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(f16_from_f32(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(F16, TinyValuesBecomeASignedZero) {
  EXPECT_EQ(f16_from_f32(0x1p-25F), 0);  // the tie between 0 and 2^-24
  EXPECT_EQ(f16_from_f32(std::nextafter(0x1p-25F, 1.0F)), 1);
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f16_from_f32(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(F16, FlushedDenormalsOfTheProcessorChangeNothing) {
  const int before = threads();
  set_threads(1);  // FTZ and DAZ on
  EXPECT_EQ(f16_from_f32(f32_from_f16(0x0001)), 0x0001);
  EXPECT_EQ(f16_from_f32(f32_from_f16(0x83ff)), 0x83ff);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(f32_from_bf16(0x0001)), 0x00010000U);
  set_threads(before);
}

TEST(Bf16, EveryTieGoesToTheEvenCode) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const std::uint32_t magnitude = code & 0x7fff;
    const std::uint32_t tie = (code << 16) | 0x8000U;
    const auto rounded = bf16_from_f32(from_bits(tie));
    if (magnitude >= 0x7f80) {  // the low half makes every one of these a NaN
      ASSERT_EQ(rounded, code | 0x40U) << code;
      continue;
    }
    ASSERT_EQ(rounded, (code & 1) == 0 ? code : code + 1) << code;  // 0x7f7f + 1 is infinity
    ASSERT_EQ(bf16_from_f32(from_bits(tie - 1)), code) << code;
    ASSERT_EQ(bf16_from_f32(from_bits(tie + 1)), code + 1) << code;
  }
}

TEST(Bf16, EveryCodeReturns) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const bool nan = (code & 0x7fff) > 0x7f80;
    ASSERT_EQ(bf16_from_f32(f32_from_bf16(static_cast<std::uint16_t>(code))), nan ? (code | 0x40U) : code) << code;
  }
}

}  // namespace
}  // namespace dormouse::base
