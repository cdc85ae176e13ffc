#include "base/hash.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace dormouse::base {
namespace {

std::span<const std::uint8_t> bytes_of(std::string_view text) { return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}; }

TEST(Crc32, MatchesTheStandardCheckValue) {
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xCBF43926U);
  EXPECT_EQ(crc32({}), 0U);
}

TEST(Crc32, ContinuesOverPartsAndOverEmptyOnes) {
  const std::string_view text = "the quick brown fox";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc32(bytes_of(text.substr(cut)), crc32({}, crc32(bytes_of(text.substr(0, cut))))), crc32(bytes_of(text)));
  }
}

// Published FNV-1a 64 vectors (Fowler, Noll, Vo).
TEST(Fnv, MatchesPublishedVectors) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8ULL);
  EXPECT_EQ(fnv1a("\xff"), 0xaf64724c8602eb6eULL);  // bytes are unsigned
}

TEST(Fnv, TheKeyBasisIsTheUsualOneWithoutItsLastDigit) { EXPECT_EQ(kKeyBasis, kFnvBasis / 10); }

// First outputs of the reference splitmix64.c (Vigna) for the seed 1234567.
TEST(SplitMix64, MatchesTheReferenceProgram) {
  SplitMix64 random(1234567);
  for (const std::uint64_t expected :
       {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL, 4593380528125082431ULL, 16408922859458223821ULL}) {
    EXPECT_EQ(random.next(), expected);
  }
}

TEST(SplitMix64, NormalNumbersHaveMeanZeroAndVarianceOne) {
  SplitMix64 random(1);
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.normal();
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.03);  // four standard errors; a missing factor 2 or a sine of the wrong angle is far outside
  EXPECT_NEAR(squares / kCount, 1, 0.04);
}

}  // namespace
}  // namespace dormouse::base
