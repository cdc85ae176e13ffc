#include "decode/range_coder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/hash.h"
#include "base/random.h"
#include "decode/distribution.h"

namespace dormouse::decode {
namespace {

struct Symbol {
  std::uint64_t begin, count;
};

std::vector<std::uint8_t> encode(const std::vector<Symbol>& symbols) {
  RangeEncoder encoder;
  for (const auto& symbol : symbols) encoder.put(symbol.begin, symbol.count);
  return encoder.finish();
}

// False when a point lies outside its symbol.
bool decodes(const std::vector<std::uint8_t>& message, const std::vector<Symbol>& symbols) {
  RangeDecoder decoder(message);
  for (const auto& symbol : symbols) {
    const auto point = decoder.point();
    if (point < symbol.begin || point >= symbol.begin + symbol.count) return false;
    decoder.take(symbol.begin, symbol.count);
  }
  return decoder.complete();
}

double bits_of(const std::vector<Symbol>& symbols) {
  double bits = 0;
  for (const auto& symbol : symbols) bits += 32 - std::log2(static_cast<double>(symbol.count));
  return bits;
}

TEST(RangeCoder, ReturnsSymbolsOfEveryProbabilityInTheirCodeLengthAndOneByte) {
  base::SplitMix64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Symbol> symbols;
    for (std::uint64_t n = random.below(300); n > 0; --n) {
      const std::uint64_t count = 1 + random.below(std::uint64_t{1} << (1 + random.below(32)));
      const std::uint64_t room = kCodeTotal - std::min(count, kCodeTotal);
      symbols.push_back({random.below(3) == 0 ? room : random.below(room + 1), std::min(count, kCodeTotal)});
    }
    const auto message = encode(symbols);
    ASSERT_TRUE(decodes(message, symbols)) << round;
    EXPECT_LE(static_cast<double>(message.size()) * 8, bits_of(symbols) + 8 + 1e-3) << round;
  }
}

TEST(RangeCoder, CarriesThroughALongRunOfFullBytes) {
  // The largest number first, so that the bytes written are 255; then something that pushes it over.
  std::vector<Symbol> symbols;
  for (int i = 0; i < 40; ++i) symbols.push_back({kCodeTotal / 2 - 1, 2});
  for (int i = 0; i < 10; ++i) symbols.push_back({kCodeTotal - 1, 1});
  EXPECT_TRUE(decodes(encode(symbols), symbols));
  for (int i = 0; i < 40; ++i) symbols.push_back({kCodeTotal - 3, 3});
  EXPECT_TRUE(decodes(encode(symbols), symbols));
}

TEST(RangeCoder, AMessageOfCertaintiesIsEmpty) {
  const std::vector<Symbol> symbols(100000, Symbol{0, kCodeTotal});
  EXPECT_TRUE(encode(symbols).empty());
  EXPECT_TRUE(decodes({}, symbols));
}

TEST(RangeCoder, ALongerMessageOrOneThatEndsInZeroIsNotComplete) {
  const std::vector<Symbol> symbols(20, Symbol{12345678, 1U << 20});
  auto message = encode(symbols);
  EXPECT_TRUE(decodes(message, symbols));
  message.push_back(0);
  EXPECT_FALSE(decodes(message, symbols));
  message.back() = 1;
  EXPECT_FALSE(decodes(message, symbols));
}

TEST(Quantise, GivesCountsThatSumToTheTotalAndFollowTheSoftmax) {
  base::SplitMix64 random(2);
  for (const double size : {0.0, 1.0, 5.0, 40.0, 1e4, 1e38}) {
    std::vector<float> logits(256);
    for (auto& x : logits) x = static_cast<float>(std::clamp(size * random.normal(), -3e38, 3e38));
    Counts counts;
    ASSERT_TRUE(quantise(logits, counts));
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}), kCodeTotal);
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float x : logits) sum += std::exp(x - most);
    for (std::size_t i = 0; i < 256; ++i) {
      ASSERT_GE(counts[i], 1U);
      const double p = std::exp(logits[i] - most) / sum;
      EXPECT_NEAR(counts[i] * 0x1p-32, p, 1e-8 * p + 258 * 0x1p-32) << size << " " << i;
    }
  }
}

TEST(Quantise, KeepsTheBitsOfTheFirstVersion) {
  std::vector<float> logits(256);
  for (std::size_t i = 0; i < 256; ++i) logits[i] = static_cast<float>(i % 17) * 0.75F - static_cast<float>(i % 5) * 1.25F;
  Counts counts;
  ASSERT_TRUE(quantise(logits, counts));
  // As computed from docs/formats/dmz.md by a second program.
  EXPECT_EQ(counts[0], 3318U);
  EXPECT_EQ(counts[100], 255082824U);
  EXPECT_EQ(base::crc32({reinterpret_cast<const std::uint8_t*>(counts.data()), sizeof counts}), 0xd9f67975U);
}

TEST(Quantise, RefusesLogitsThatAreNotFinite) {
  Counts counts;
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const std::size_t at : {0, 100, 255}) {
      std::vector<float> logits(256, 1.0F);
      logits[at] = bad;
      EXPECT_FALSE(quantise(logits, counts)) << bad << " " << at;
    }
  }
}

}  // namespace
}  // namespace dormouse::decode
