#include "table/keys.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace dormouse::table {
namespace {

std::vector<std::uint32_t> keys_of(std::string_view text, const std::vector<std::int64_t>& orders = {2, 3, 4}) {
  std::vector<std::uint32_t> keys(3 * text.size());
  ngram_keys({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, orders, keys);
  return keys;
}

TEST(Keys, HashUsesTheTruncatedBasis) {
  EXPECT_EQ(base::fnv1a("", base::kKeyBasis), 0x14650fb0739d0383ULL);
  EXPECT_EQ(base::fnv1a("a", base::kKeyBasis), 0x44bd8ad473cd9906ULL);
  EXPECT_EQ(base::fnv1a("abc", base::kKeyBasis), 0xe16801510db89efdULL);
  EXPECT_EQ(base::fnv1a("hello", base::kKeyBasis), 0x5a0d15131ec7a1ULL);
}

TEST(Keys, HelloMatchesThePublishedKeys) {
  const std::vector<std::uint32_t> want = {1942857809, 1942857809, 1942857809, 1182060636, 1182060636, 1182060636, 1181118426, 947765648,
                                           947765648,  1182866691, 537907778,  2108727092, 1182867126, 1298464388, 2061640311};
  EXPECT_EQ(keys_of("hello"), want);
}

TEST(Keys, DormouseMatchesTheGoldens) {
  const auto keys = keys_of("dormouse");
  const auto row = [&](std::size_t p) { return std::vector<std::uint32_t>(keys.begin() + 3 * p, keys.begin() + 3 * p + 3); };
  EXPECT_EQ(row(0), (std::vector<std::uint32_t>{1942856069, 1942856069, 1942856069}));
  EXPECT_EQ(row(1), (std::vector<std::uint32_t>{1181360286, 1181360286, 1181360286}));
  EXPECT_EQ(row(2), (std::vector<std::uint32_t>{1182312066, 643166468, 643166468}));
  EXPECT_EQ(row(7), (std::vector<std::uint32_t>{1183007631, 1879760978, 2058256911}));
}

TEST(Keys, DependOnNothingBeforeTheContext) {
  const auto a = keys_of("xxxxdorm"), b = keys_of("dorm");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a[7 * 3 + i], b[3 * 3 + i]);
  const auto c = keys_of("yorm");
  EXPECT_EQ(b[9], c[9]);
  EXPECT_EQ(b[10], c[10]);
  EXPECT_NE(b[11], c[11]);
}

TEST(Keys, ClearTheTopBitForEveryByte) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  for (const std::uint32_t key : keys_of(all)) EXPECT_LT(key, 1U << 31);
}

TEST(Keys, RefuseWrongSizes) {
  std::vector<std::uint32_t> keys(5);
  const std::vector<std::uint8_t> row(2);
  const std::vector<std::int64_t> orders = {2, 3, 4};
  EXPECT_THROW(ngram_keys(row, orders, keys), base::Error);
  EXPECT_TRUE(keys_of("").empty());
}

}  // namespace
}  // namespace dormouse::table
