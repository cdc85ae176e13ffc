// Held-out text that stands in the training text.
#include "data/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support.h"

namespace dormouse::data {
namespace {

class OverlapTest : public testing::Test {
 protected:
  Overlap find(std::string_view held_out, std::uint64_t most = UINT64_MAX) const {
    return find_overlap(find_corpus(directory_.path()), {reinterpret_cast<const std::uint8_t*>(held_out.data()), held_out.size()}, most);
  }
  // By comparing at every place.
  static std::uint64_t slowly(const std::vector<std::string>& files, std::string_view held_out) {
    std::uint64_t found = 0;
    for (std::size_t i = 0; i + kOverlapBlock <= held_out.size(); i += kOverlapBlock) {
      const std::string_view block = held_out.substr(i, kOverlapBlock);
      found +=
          std::any_of(files.begin(), files.end(), [&](const std::string& text) { return text.find(block) != std::string::npos; }) ? 1 : 0;
    }
    return found;
  }
  TemporaryDirectory directory_;
};

TEST_F(OverlapTest, BlocksAreFoundAtEveryPlaceOfEveryFile) {
  std::vector<std::string> files;
  for (std::uint64_t i = 0; i < 3; ++i) {
    files.push_back(random_text(i == 2 ? (2U << 20) + 77 : 900 + 31 * i, i + 1));
    directory_.write("file" + std::to_string(i), files.back());
  }
  const std::string& big = files[2];
  for (const std::size_t start : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{1} << 20,
                                  (std::size_t{1} << 20) + 1, (std::size_t{1} << 20) + 64, big.size() - 640}) {
    const Overlap all = find(big.substr(start, 640));
    EXPECT_EQ(all.blocks, 10U);
    EXPECT_EQ(all.found, 10U) << start;
    EXPECT_EQ(all.searched, files[0].size() + files[1].size() + big.size());
  }
  const std::string mixed = random_text(128, 9) + files[0].substr(5, 128) + random_text(64, 10) + files[1].substr(800, 64) + "the rest";
  EXPECT_EQ(find(mixed).found, 3U);
  EXPECT_EQ(find(mixed).blocks, 6U);
  EXPECT_DOUBLE_EQ(find(mixed).share(), 0.5);
}

TEST_F(OverlapTest, TextsOfTwoLettersAgreeWithComparingAtEveryPlace) {
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    const auto sparse = [](std::size_t size, std::uint64_t which) {  // few b among a: many blocks are alike
      std::string text = random_text(size, which);
      for (char& c : text) c = static_cast<unsigned char>(c) < 8 ? 'b' : 'a';
      return text;
    };
    const std::string text = sparse(5000, seed), held_out = sparse(3000, 100 + seed);
    directory_.write("text", text);
    EXPECT_EQ(find(held_out).found, slowly({text}, held_out)) << seed;
    EXPECT_GT(find(held_out).found, 0U) << seed;
  }
}

TEST_F(OverlapTest, NeitherZerosNorOtherRunsAreAlike) {
  const std::string zeros(200, '\0'), ones(200, '\1'), letters(200, 'a');
  directory_.write("text", zeros + letters);
  EXPECT_EQ(find(zeros).found, 3U);
  EXPECT_EQ(find(letters).found, 3U);
  EXPECT_EQ(find(ones).found, 0U);
}

TEST_F(OverlapTest, ABlockAcrossTwoFilesIsNotThere) {
  const std::string text = random_text(128, 1);
  directory_.write("a", text.substr(0, 96));
  directory_.write("b", text.substr(96));
  EXPECT_EQ(find(text).found, 1U);
}

TEST_F(OverlapTest, ShortTextsAndLimits) {
  const std::string text = random_text(640, 1);
  directory_.write("text", text);
  EXPECT_EQ(find(text.substr(0, 63)).blocks, 0U);
  EXPECT_EQ(find(text.substr(0, 63)).share(), 0);
  const Overlap half = find(text, 320);
  EXPECT_EQ(half.searched, 320U);
  EXPECT_EQ(half.found, 5U);
  EXPECT_EQ(find(text, 0).found, 0U);
  directory_.write("tiny", "ten bytes.");
  EXPECT_EQ(find(text).searched, 650U);
  EXPECT_EQ(find(text).found, 10U);
}

TEST_F(OverlapTest, WhatIsHeldOutOfTheCorpusItselfIsNotSearched) {
  directory_.write("text", random_text(100'000, 1));
  const Split split = carve(find_corpus(directory_.path()));
  EXPECT_EQ(find_overlap(split.train, split.held_out, UINT64_MAX).found, 0U);
}

}  // namespace
}  // namespace dormouse::data
