#include "decode/compress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/hash.h"
#include "base/threads.h"
#include "ops/cpu_level.h"
#include "support.h"

namespace dormouse::decode {
namespace {

using Bytes = std::vector<std::uint8_t>;
using network::testing::random_bytes;
using testing::liked_text;
using testing::tiny_model;
using testing::weights_of;

// At most `piece` bytes at a time, as a pipe gives them.
ReadBytes reader(const Bytes& bytes, std::size_t piece = SIZE_MAX) {
  return [&bytes, piece, at = std::size_t{0}](std::span<std::uint8_t> out) mutable {
    const std::size_t count = std::min({out.size(), piece, bytes.size() - at});
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, out.begin());
    at += count;
    return count;
  };
}

struct Fixture {
  explicit Fixture(std::int64_t width = 16)
      : model(tiny_model(3, width)),
        weights(weights_of(model)),
        compressor(weights, network::weights_crc(model.parameters, model.config)) {}
  network::Model model;
  network::Weights weights;
  Compressor compressor;

  Bytes compress(const Bytes& text, const CompressOptions& options = {}, CompressStats* stats = nullptr) {
    Bytes out;
    const auto result = compressor.compress(
        reader(text, 1000), [&](std::span<const std::uint8_t> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }, options);
    EXPECT_EQ(result.original, text.size());
    EXPECT_EQ(result.archive, out.size());
    if (stats != nullptr) *stats = result;
    return out;
  }
  Bytes decompress(const Bytes& archive) {
    Bytes out;
    ArchiveReader in(reader(archive, 777), "x.dmz");
    compressor.decompress(in, [&](std::span<const std::uint8_t> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); });
    return out;
  }
};

Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

Bytes repeated(std::string_view text, std::size_t count) {
  Bytes out;
  while (out.size() < count) out.insert(out.end(), text.begin(), text.end());
  out.resize(count);
  return out;
}

Bytes this_program(std::size_t count) {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  Bytes out(count);
  in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(count));
  out.resize(static_cast<std::size_t>(in.gcount()));
  return out;
}

void seal(Bytes& archive) {  // both checksums of an archive anew
  const auto store = [&](std::size_t at, std::uint32_t value) { std::memcpy(&archive[at], &value, 4); };
  store(40, base::crc32(std::span(archive).first(40)));
  store(archive.size() - 4, base::crc32(std::span(archive).first(archive.size() - 4)));
}

std::string refusal(Fixture& f, const Bytes& archive) {
  try {
    f.decompress(archive);
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Compress, ReturnsEveryKindOfFileByteForByte) {
  Fixture f;
  Bytes all(256);
  for (std::size_t i = 0; i < 256; ++i) all[i] = static_cast<std::uint8_t>(i);
  const std::vector<Bytes> originals = {{},
                                        {0},
                                        {255},
                                        {7, 7},
                                        bytes_of("The dormouse sleeps in the teapot.\n"),
                                        repeated("na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x90\xad\n", 3000),
                                        all,
                                        Bytes(5000, 0),
                                        Bytes(5000, 255),
                                        random_bytes(5000, 9),
                                        liked_text(f.model, 5000)};
  for (const auto& original : originals) {
    for (const std::uint32_t block : {kDefaultBlock, 1000U, 255U}) {
      EXPECT_EQ(f.decompress(f.compress(original, {.block = block})), original) << original.size() << " " << block;
      EXPECT_EQ(f.decompress(f.compress(original, {.block = block, .size = original.size()})), original) << original.size() << " " << block;
    }
  }
}

TEST(Compress, ReturnsAProgramByteForByte) {
  Fixture f;
  const Bytes original = this_program(1 << 16);
  ASSERT_EQ(original.size(), std::size_t{1} << 16);
  EXPECT_EQ(f.decompress(f.compress(original, {.block = 8192})), original);
}

TEST(Compress, EveryLengthAroundTheEdgesOfBlocksAndGroupsReturns) {
  Fixture f;
  for (const std::size_t length : {1, 2, 7, 8, 9, 15, 16, 17, 127, 128, 129, 130, 255, 256, 257, 258}) {
    const Bytes original = random_bytes(length, length);
    EXPECT_EQ(f.decompress(f.compress(original, {.block = 8})), original) << length;
  }
}

TEST(Compress, RandomBytesGrowByLessThanOnePercentAndAreStoredRaw) {
  Fixture f;
  const Bytes original = random_bytes(200'000, 1);
  CompressStats stats;
  const Bytes archive = f.compress(original, {}, &stats);
  EXPECT_LT(archive.size(), original.size() + original.size() / 500);
  EXPECT_EQ(stats.raw_blocks, stats.blocks);
  EXPECT_EQ(f.decompress(archive), original);
}

TEST(Compress, TheArchiveIsTheSameForEveryThreadCount) {
  auto model = tiny_model(3, 64);  // wide enough for matrix products on several threads
  Bytes original = liked_text(model, 4000);
  const Bytes noise = random_bytes(2000, 4);
  original.insert(original.begin() + 1500, noise.begin(), noise.end());
  Bytes first;
  for (const int threads : {1, 2, 3}) {
    base::set_threads(threads);
    Fixture f(64);
    CompressStats stats;
    const Bytes archive = f.compress(original, {.block = 300}, &stats);
    EXPECT_TRUE(stats.raw_blocks > 0 && stats.raw_blocks < stats.blocks);
    if (first.empty()) first = archive;
    EXPECT_EQ(archive, first) << threads;
    EXPECT_EQ(f.decompress(first), original) << threads;
  }
  base::set_threads(1);
}

TEST(Compress, ABlockIsCodedTheSameAloneAndAmongOthers) {
  Fixture f;
  const Bytes text = liked_text(f.model, 1 + 64 * 20);
  const Bytes many = f.compress(text, {.block = 64});
  std::vector<ArchiveBlock> blocks;
  ArchiveReader in(reader(many), "x");
  for (ArchiveBlock block; in.next(block);) blocks.push_back(block);
  ASSERT_EQ(blocks.size(), 20U);
  for (const std::size_t i : {0, 7, 15, 19}) {
    const Bytes part(text.begin() + static_cast<std::ptrdiff_t>(64 * i), text.begin() + static_cast<std::ptrdiff_t>(64 * i + 65));
    const Bytes alone = f.compress(part, {.block = 64});
    ArchiveReader one(reader(alone), "x");
    ArchiveBlock block;
    ASSERT_TRUE(one.next(block));
    EXPECT_EQ(block.message, blocks[i].message) << i;
    EXPECT_EQ(block.before, blocks[i].before) << i;
  }
}

TEST(Decompress, RefusesEveryFlippedByte) {
  Fixture f;
  Bytes original = liked_text(f.model, 150);
  const Bytes noise = random_bytes(70, 5);
  original.insert(original.end(), noise.begin(), noise.end());
  CompressStats stats;
  const Bytes archive = f.compress(original, {.block = 70, .size = original.size()}, &stats);
  EXPECT_TRUE(stats.raw_blocks > 0 && stats.raw_blocks < stats.blocks);
  for (std::size_t at = 0; at < archive.size(); ++at) {
    for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
      Bytes changed = archive;
      changed[at] ^= static_cast<std::uint8_t>(flip);
      const std::string message = refusal(f, changed);
      ASSERT_FALSE(message.empty()) << "byte " << at;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_EQ(message.rfind("x.dmz", 0), 0U) << message;
    }
  }
}

TEST(Decompress, RefusesTruncationAtEveryLengthAndWhatFollowsTheEnd) {
  Fixture f;
  Bytes archive = f.compress(liked_text(f.model, 400), {.block = 100});
  for (std::size_t length = 0; length < archive.size(); ++length) {
    EXPECT_FALSE(refusal(f, {archive.begin(), archive.begin() + static_cast<std::ptrdiff_t>(length)}).empty()) << length;
  }
  archive.push_back(0);
  EXPECT_NE(refusal(f, archive).find("goes on after its end"), std::string::npos);
}

TEST(Decompress, RefusesHugeCountsWhoseChecksumsHold) {
  Fixture f;
  const Bytes archive = f.compress(liked_text(f.model, 400), {.block = 100, .size = 400});
  for (const std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{1} << 31, (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 63, kUnknownSize - 1}) {
    for (const std::size_t at : {8, 20, 44, 48}) {  // block, size, a block's length and stored length
      Bytes changed = archive;
      std::memcpy(&changed[at], &count, at == 20 ? 8 : 4);
      seal(changed);
      if (changed == archive) continue;
      EXPECT_FALSE(refusal(f, changed).empty()) << count << " at " << at;
    }
  }
}

TEST(Decompress, RefusesAnotherModelCpuLevelOrArithmeticBeforeAnyOutput) {
  Fixture f;
  const Bytes archive = f.compress(bytes_of("some text"), {});
  std::size_t written = 0;
  const auto refused = [&](Bytes changed, network::Model& model) {
    seal(changed);
    const network::Weights weights = weights_of(model);
    Compressor compressor(weights, network::weights_crc(model.parameters, model.config));
    ArchiveReader in(reader(changed), "x.dmz");
    try {
      compressor.decompress(in, [&](std::span<const std::uint8_t> bytes) { written += bytes.size(); });
    } catch (const base::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  auto other = tiny_model(4);
  EXPECT_NE(refused(archive, other).find("another model than model.dmexp"), std::string::npos);
  auto config = tiny_model();
  config.config.norm_eps *= 2;
  EXPECT_NE(refused(archive, config).find("another model"), std::string::npos);
  Bytes changed = archive;
  changed[17] ^= std::uint8_t{1};
  EXPECT_NE(refused(changed, f.model).find("arithmetic"), std::string::npos);
  std::memcpy(&changed[28], "ssse9\0\0", 8);
  EXPECT_NE(refused(changed, f.model).find("--cpu ssse9"), std::string::npos);
  EXPECT_EQ(written, 0U);
}

TEST(Decompress, AnotherCpuLevelIsRefusedOrSaysTheSame) {
  const auto levels = ops::available_cpu_levels();
  ops::set_cpu_level("scalar");
  Fixture low;
  const Bytes archive = low.compress(liked_text(low.model, 500));
  for (const auto& level : levels) {
    ops::set_cpu_level(level);
    Fixture f;
    const std::string message = refusal(f, archive);
    if (f.compressor.identity().probe_crc == low.compressor.identity().probe_crc) {
      EXPECT_EQ(message, "") << level;
    } else {
      EXPECT_NE(message.find("add --cpu scalar"), std::string::npos) << level << ": " << message;
    }
  }
  ops::set_cpu_level("");
}

TEST(Compress, AnOriginalOfAnotherSizeThanSaidIsRefused) {
  Fixture f;
  EXPECT_THROW(f.compress(Bytes(100, 1), {.size = 99}), base::Error);
  EXPECT_THROW(f.compress({}, {.size = 1}), base::Error);
  EXPECT_THROW(f.compress({}, {.block = 0}), base::UsageError);
  EXPECT_THROW(f.compress({}, {.block = kLargestBlock + 1}), base::UsageError);
}

TEST(Compress, AModelWhoseLogitsAreNotFiniteIsRefused) {
  auto model = tiny_model();
  for (std::int64_t i = 0; i < model.parameters.head.s.value.size(); ++i) model.parameters.head.s.value.data<float>()[i] = 3e38F;
  for (std::int64_t i = 0; i < model.parameters.head.v.value.size(); ++i) model.parameters.head.v.value.data<float>()[i] = 3e38F;
  const network::Weights weights = weights_of(model);
  EXPECT_THROW(Compressor(weights, 0), base::Error);
}

}  // namespace
}  // namespace dormouse::decode
