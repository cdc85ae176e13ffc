#include "format/gguf.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>

#include "format/packed.h"
#include "support.h"

namespace dormouse::format {
namespace {

using testing::contains;
using testing::peek;
using testing::poke;

std::vector<std::uint8_t> floats(const std::vector<float>& values) {
  std::vector<std::uint8_t> out(values.size() * 4);
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

// The block of ggml's own test: x_i = 0.5 ((7 i + 3) mod 3 - 1).
std::vector<std::uint8_t> known_block() {
  std::vector<float> values(256);
  for (std::size_t i = 0; i < 256; ++i) values[i] = 0.5F * static_cast<float>(static_cast<int>((7 * i + 3) % 3) - 1);
  std::vector<std::int8_t> signs(256);
  bool inexact = true;
  const float scale = ternarise(values.data(), 256, 1, signs.data(), inexact);
  EXPECT_FALSE(inexact);
  std::vector<std::uint8_t> out;
  append_tq2_block(scale, signs.data(), out);
  return out;
}

class GgufTest : public testing::FolderTest {
 protected:
  std::string small() const {
    const auto path = folder_ / "good.gguf";
    const auto size = write_gguf(path,
                                 {{"general.architecture", std::string("dormouse")},
                                  {"dormouse.rows", std::int64_t{64}},
                                  {"dormouse.large", std::int64_t{1} << 40},
                                  {"dormouse.eps", 0.001},
                                  {"dormouse.on", true},
                                  {"dormouse.orders", std::vector<std::int64_t>{2, 3, 4}}},
                                 {{"w", {2, 3}, GgufType::f32, floats({1, 2, 3, 4, 5, 6})},
                                  {"half", {2}, GgufType::bf16, {0x80, 0x3f, 0x00, 0xc0}},
                                  {"factor.u", {1, 256}, GgufType::tq2_0, known_block()}});
    EXPECT_EQ(size, std::filesystem::file_size(path));
    return get(path);
  }
  std::string refused(const std::string& bytes) const {
    const auto path = put(bytes, "bad.gguf");
    return refusal([&] {
      const GgufFile file(path);
      for (const auto& entry : file.entries()) (void)file.read(entry);
    });
  }
};

TEST_F(GgufTest, MetadataAndValuesComeBack) {
  small();
  const GgufFile file(folder_ / "good.gguf");
  std::map<std::string, std::string> metadata(file.metadata().begin(), file.metadata().end());
  EXPECT_EQ(metadata.at("general.architecture"), "dormouse");
  EXPECT_EQ(metadata.at("dormouse.rows"), "64");
  EXPECT_EQ(metadata.at("dormouse.large"), "1099511627776");
  EXPECT_EQ(metadata.at("dormouse.eps"), "0.001");
  EXPECT_EQ(metadata.at("dormouse.on"), "true");
  EXPECT_EQ(metadata.at("dormouse.orders"), "3 elements");
  EXPECT_TRUE(file.has_checksum());
  ASSERT_EQ(file.entries().size(), 3U);
  EXPECT_EQ(file.entries()[0].dims, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.read(file.entries()[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(file.read(file.entries()[1]), (std::vector<float>{1, -2}));
  const auto ternary = file.read(file.entries()[2]);
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(ternary[i], 0.5F * static_cast<float>(static_cast<int>((7 * i + 3) % 3) - 1)) << i;
}

TEST_F(GgufTest, ABlockOfTq2IsThatOfGgml) {
  const auto block = known_block();
  ASSERT_EQ(block.size(), 66U);
  const std::uint8_t pattern[3] = {0x18, 0x61, 0x86};
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(block[i], pattern[(i % 32 + 32 * (i / 32) * 4) % 3]) << i;
  EXPECT_EQ(block[64], 0x00);
  EXPECT_EQ(block[65], 0x38);
}

// fixtures/package.gguf: written by the Python package gguf 0.19, its tensors quantised by it.
TEST_F(GgufTest, AFileOfThePythonPackageIsRead) {
  const GgufFile file(std::filesystem::path(DORMOUSE_TEST_DIR) / "format" / "fixtures" / "package.gguf");
  std::map<std::string, std::string> metadata(file.metadata().begin(), file.metadata().end());
  EXPECT_EQ(metadata.at("dormouse.note"), "written by the gguf package");
  EXPECT_EQ(metadata.at("dormouse.names"), "2 elements");
  EXPECT_FALSE(file.has_checksum());
  ASSERT_EQ(file.entries().size(), 4U);
  EXPECT_EQ(file.read(file.entries()[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(file.read(file.entries()[1]), (std::vector<float>{0.5F, -2, 5.9604645e-8F}));
  for (const std::size_t at : {std::size_t{2}, std::size_t{3}}) {
    EXPECT_EQ(file.entries()[at].dims, (std::vector<std::int64_t>{2, 256}));
    const auto values = file.read(file.entries()[at]);
    for (std::size_t i = 0; i < 512; ++i)
      ASSERT_EQ(values[i], 0.5F * static_cast<float>(static_cast<int>((7 * i + 3) % 3) - 1)) << at << " " << i;
  }
}

TEST_F(GgufTest, EveryTruncationAndAnyFlippedByteOfTheTensorsIsRefused) {
  const std::string good = small();
  ASSERT_EQ(refused(good), "");
  for (std::size_t n = 0; n < good.size(); ++n) ASSERT_NE(refused(good.substr(0, n)), "") << n;
  EXPECT_NE(refused(good + "x"), "");
  const GgufFile file(put(good, "again.gguf"));
  for (std::size_t i = file.entries()[0].offset; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(~bad[i]);
    ASSERT_TRUE(contains(refused(bad), "CRC")) << i;
  }
}

TEST_F(GgufTest, NoFlippedByteOfTheHeadCrashesTheReader) {
  const std::string good = small();
  const std::size_t head = GgufFile(folder_ / "good.gguf").entries()[0].offset;
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < head; ++i) {
    for (const int mask : {0x01, 0x80, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ mask);
      accepted += refused(bad).empty() ? 1 : 0;
    }
  }
  EXPECT_LT(accepted, 2 * head);  // names and values: GGUF has no checksum of its head
}

TEST_F(GgufTest, CountsAndLengthsBeyondTheFileAreRefusedBeforeAnythingIsAllocated) {
  const std::string good = small();
  for (const std::uint64_t value : {std::uint64_t{1} << 31, std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    for (const std::size_t at : {std::size_t{8}, std::size_t{16}, std::size_t{24}}) {  // tensors, values, the first key's length
      std::string bad = good;
      poke(bad, at, value);
      EXPECT_TRUE(contains(refused(bad), "damaged")) << at << " " << value;
    }
    for (const std::string name : {"w", "factor.u"}) {
      std::string bad = good;
      const std::string start = std::string(1, static_cast<char>(name.size())) + std::string(7, '\0') + name;
      const std::size_t at = bad.find(start) + start.size();
      poke(bad, at + 4, value);  // its first dim
      EXPECT_NE(refused(bad), "") << name << " " << value;
      bad = good;
      poke(bad, at + 4 + 16 + 4, value);  // its offset
      EXPECT_NE(refused(bad), "") << name << " " << value;
    }
  }
  std::string bad = good;
  poke(bad, 4, std::uint32_t{4});
  EXPECT_TRUE(contains(refused(bad), "version 4"));
}

TEST_F(GgufTest, PipesAndOtherFilesAreRefused) {
  EXPECT_TRUE(contains(refusal([&] { GgufFile file(folder_); }), "is a directory"));
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(contains(refusal([&] { GgufFile file(pipe); }), "FIFO"));
  EXPECT_TRUE(contains(refused("GGML and so on"), "is not a GGUF file"));
}

TEST_F(GgufTest, RowsThatAreNoWholeBlocksAreRefusedWithTheWayOut) {
  EXPECT_EQ(gguf_bytes("x", {3, 512}, GgufType::tq2_0), 3U * 2 * 66);
  const std::string message = refusal([] { (void)gguf_bytes("loop.readout.u", {32, 128}, GgufType::tq2_0); });
  EXPECT_TRUE(contains(message, "loop.readout.u has rows of 128 values") && contains(message, "--dtype bf16")) << message;
}

}  // namespace
}  // namespace dormouse::format
