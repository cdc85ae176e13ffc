#include "data/byte_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "data/order.h"
#include "support.h"

namespace dormouse::data {
namespace {

using Window = std::string;

std::vector<Window> windows_of(const Batch& batch) {
  std::vector<Window> out;
  const auto length = static_cast<std::size_t>(batch.seq_len) + 1;
  for (std::size_t r = 0; r < static_cast<std::size_t>(batch.rows); ++r) {
    out.emplace_back(batch.bytes.begin() + r * length, batch.bytes.begin() + (r + 1) * length);
  }
  return out;
}

// The windows of each whole epoch from here on.
std::vector<std::vector<Window>> epochs_of(ByteStream& stream, int epochs) {
  std::vector<std::vector<Window>> out(epochs);
  while (true) {
    const std::uint64_t before = stream.position().epoch;
    const Batch batch = stream.next();
    EXPECT_EQ(batch.rows, 1);
    if (before >= static_cast<std::uint64_t>(epochs)) return out;
    out[before].push_back(windows_of(batch)[0]);
  }
}

// The documented windows of an epoch, cut independently from the text of one file.
std::multiset<Window> documented(const std::string& text, std::size_t t, std::uint64_t offset) {
  std::multiset<Window> out;
  for (std::size_t at = offset; at + t + 1 <= text.size(); at += t) out.insert(text.substr(at, t + 1));
  return out;
}

class Rings : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(ByteStream, Rings, ::testing::Values(64ULL << 20, 4000ULL, 400ULL, 40ULL, 1ULL));

TEST_P(Rings, ThreeEpochsGiveThreeCompleteDifferentOrders) {
  const TemporaryDirectory directory;
  const std::string text = random_text(10007, 1);
  const Corpus corpus = find_corpus(directory.write("a.txt", text));
  ByteStream stream(corpus, 32, 1, 7, GetParam());
  const auto epochs = epochs_of(stream, 3);
  const Geometry geometry(text.size(), 32, 7, GetParam());
  std::set<std::uint64_t> offsets;
  for (std::uint64_t e = 0; e < 3; ++e) {
    EXPECT_EQ(std::multiset<Window>(epochs[e].begin(), epochs[e].end()), documented(text, 32, geometry.offset(e))) << e;
    EXPECT_EQ(epochs[e].size(), geometry.windows(e));
    offsets.insert(geometry.offset(e));
  }
  EXPECT_GT(offsets.size(), 1U);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], epochs[2]);
}

TEST_P(Rings, BatchesCarryOverIntoTheNextEpoch) {
  const TemporaryDirectory directory;
  const Corpus corpus = find_corpus(directory.write("a.txt", random_text(3000, 2)));
  ByteStream one(corpus, 16, 1, 3, GetParam()), seven(corpus, 16, 7, 3, GetParam());
  for (int i = 0; i < 120; ++i) {
    for (const Window& window : windows_of(seven.next())) EXPECT_EQ(window, windows_of(one.next())[0]);
    EXPECT_EQ(one.position(), seven.position());
  }
  EXPECT_GT(seven.epoch(), 2U);
}

TEST_P(Rings, SeekEqualsRunning) {
  const TemporaryDirectory directory;
  const Corpus corpus = find_corpus(directory.write("a.txt", random_text(3000, 2)));
  ByteStream running(corpus, 16, 4, 3, GetParam());
  std::vector<std::pair<ByteStream::Position, std::vector<std::uint8_t>>> log;
  for (int i = 0; i < 130; ++i) {
    const auto position = running.position();
    log.emplace_back(position, running.next().bytes);
  }
  EXPECT_GE(log.back().first.epoch, 2U);
  ByteStream seeking(corpus, 16, 4, 3, GetParam());
  for (const std::size_t i : {129, 0, 64, 65, 3, 100}) {
    seeking.seek(log[i].first);
    EXPECT_EQ(seeking.position(), log[i].first);
    for (std::size_t j = i; j < std::min<std::size_t>(i + 4, log.size()); ++j)
      EXPECT_EQ(seeking.next().bytes, log[j].second) << i << " " << j;
  }
  ByteStream again(corpus, 16, 4, 3, GetParam());
  for (const auto& [position, bytes] : log) EXPECT_EQ(again.next().bytes, bytes);
}

TEST_P(Rings, ManySmallFilesAreConcatenatedInTheEpochsOrder) {
  const TemporaryDirectory directory;
  std::map<std::string, std::string> texts;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "f" + std::to_string(i);
    texts[name] = random_text(1 + i * 7 % 90, 100 + i);
    directory.write(name, texts[name]);
  }
  const Corpus corpus = find_corpus(directory.path());
  ByteStream stream(corpus, 24, 1, 5, GetParam());
  const auto epochs = epochs_of(stream, 2);
  const Geometry geometry(corpus.bytes, 24, 5, GetParam());
  for (std::uint64_t e = 0; e < 2; ++e) {
    std::string text;
    const EpochOrder order(geometry, corpus, e);
    for (const std::uint32_t file : order.files) text += texts.at(corpus.files[file].name);
    EXPECT_EQ(std::multiset<Window>(epochs[e].begin(), epochs[e].end()), documented(text, 24, geometry.offset(e)));
  }
}

TEST(ByteStream, WindowsPerEpochAtTheEdgesOfTheCorpusSize) {
  const TemporaryDirectory directory;
  const std::uint64_t k = 3, b = 4, t = 8;
  for (const int extra : {-1, 0, 1}) {
    const std::string text = random_text(k * b * t + extra, 9);
    ByteStream stream(find_corpus(directory.write("a.txt", text)), t, 1, 11);
    const Geometry geometry(text.size(), t, 11, 64 << 20);
    const auto epochs = epochs_of(stream, 20);
    for (std::uint64_t e = 0; e < 20; ++e) {
      // N = 96 + extra = 11 T + 1 + x with x = 6, 7, or 12 T + 1 + 0.
      const std::uint64_t whole = extra == 1 ? 12 : 11, x = extra == 1 ? 0 : 7 + extra;
      EXPECT_EQ(epochs[e].size(), geometry.offset(e) <= x ? whole : whole - 1) << extra << " epoch " << e;
      std::string labels;
      for (const Window& window : epochs[e]) labels += window.substr(1);
      EXPECT_EQ(labels.size(), epochs[e].size() * t);
    }
  }
}

TEST(ByteStream, TheSmallestCorpusIsOneBatchAndNeverRunsDry) {
  const TemporaryDirectory directory;
  for (const std::int64_t batch : {1, 3}) {
    const auto path = directory.write("a.txt", random_text(batch * 8 + 1, 4));
    ByteStream stream(find_corpus(path), 8, batch, 1);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(stream.next().bytes.size(), static_cast<std::size_t>(batch) * 9);
    const std::string message = message_of([&] { ByteStream(find_corpus(path), 8, batch + 1, 1); });
    EXPECT_NE(message.find("below one batch"), std::string::npos) << message;
    EXPECT_NE(message.find("--batch"), std::string::npos);
  }
}

TEST(ByteStream, RefusesSizesBelowOneAndHugeOnes) {
  const TemporaryDirectory directory;
  const Corpus corpus = find_corpus(directory.write("a.txt", random_text(100, 4)));
  EXPECT_THROW(ByteStream(corpus, 0, 1, 1), base::Error);
  EXPECT_THROW(ByteStream(corpus, 8, 0, 1), base::Error);
  EXPECT_THROW(ByteStream(corpus, -1, 1, 1), base::Error);
  EXPECT_THROW(ByteStream(corpus, INT64_MAX, INT64_MAX, 1), base::Error);
  EXPECT_THROW(ByteStream(corpus, 1, INT64_MAX, 1), base::Error);
  EXPECT_THROW(ByteStream(Corpus{}, 1, 1, 1), base::Error);
  EXPECT_THROW(ByteStream(find_corpus(directory.write("one", "x")), 1, 1, 1), base::Error);
}

TEST(ByteStream, All256ByteValuesAndInvalidUtf8ArriveAsTheyAre) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  text += "\xff\xfe\xc0\xaf\xed\xa0\x80";
  for (const std::uint64_t ring : {1ULL << 20, 50ULL}) {
    ByteStream stream(find_corpus(directory.write("all.bin", text)), 4, 1, 2, ring);
    const auto epochs = epochs_of(stream, 20);
    std::set<char> seen;
    for (const auto& epoch : epochs) {
      for (const Window& window : epoch) {
        seen.insert(window.begin(), window.end());
        EXPECT_NE(text.find(window), std::string::npos);
      }
    }
    EXPECT_EQ(seen.size(), 256U);
  }
}

TEST(ByteStream, SeedsGiveDifferentOrdersAndTheSameSeedTheSame) {
  const TemporaryDirectory directory;
  const Corpus corpus = find_corpus(directory.write("a.txt", random_text(5000, 2)));
  ByteStream a(corpus, 16, 8, 1), b(corpus, 16, 8, 1), c(corpus, 16, 8, 2);
  const auto first = a.next().bytes;
  EXPECT_EQ(first, b.next().bytes);
  EXPECT_NE(first, c.next().bytes);
}

TEST(ByteStream, HeldOutTailsAreNeverDelivered) {
  const TemporaryDirectory directory;
  directory.write("a", std::string(500, 'a') + std::string(100, 'X'));
  directory.write("b", std::string(500, 'b'));
  Corpus corpus = find_corpus(directory.path());
  corpus.files[0].skip_tail = 100;
  corpus.bytes -= 100;
  for (const std::uint64_t ring : {1ULL << 20, 128ULL}) {
    ByteStream stream(corpus, 16, 5, 1, ring);
    for (int i = 0; i < 60; ++i) {
      for (const std::uint8_t byte : stream.next().bytes) ASSERT_NE(byte, 'X');
    }
  }
}

TEST(ByteStream, SeekOutOfRangeIsRefusedAndLeavesThePositionAlone) {
  const TemporaryDirectory directory;
  const Corpus corpus = find_corpus(directory.write("a.txt", random_text(3000, 2)));
  ByteStream stream(corpus, 16, 4, 3), ring(corpus, 16, 4, 3, 500);
  stream.next();
  const auto position = stream.position();
  EXPECT_THROW(stream.seek({0, 0, 100000}), base::Error);
  EXPECT_THROW(stream.seek({0, 1, 0}), base::Error);
  EXPECT_THROW(stream.seek({0, 0, stream.windows_in_epoch()}), base::Error);
  EXPECT_EQ(stream.position(), position);
  EXPECT_NO_THROW(stream.next());
  EXPECT_THROW(ring.seek({0, 1000, 0}), base::Error);
  EXPECT_THROW(ring.seek({0, 0, 200}), base::Error);
  ring.seek({1ULL << 40, 2, 3});
  EXPECT_EQ(ring.position().text(), "epoch 1099511627776 generation 2 window 3");
  EXPECT_NO_THROW(ring.next());
}

TEST(ByteStream, AMissingOrShortenedFileIsAnErrorOfNextThatNamesIt) {
  const TemporaryDirectory directory;
  const auto path = directory.write("text with space.txt", random_text(3000, 2));
  for (const std::uint64_t ring : {1ULL << 20, 600ULL}) {
    directory.write("text with space.txt", random_text(3000, 2));
    const Corpus corpus = find_corpus(path);
    ByteStream gone(corpus, 16, 4, 3, ring);
    std::filesystem::remove(path);
    for (int i = 0; i < 2; ++i) {
      EXPECT_NE(message_of([&] { gone.next(); }).find("text with space.txt"), std::string::npos);
    }
    directory.write("text with space.txt", random_text(3000, 2));
    gone.seek({0, 0, 0});
    EXPECT_NO_THROW(gone.next());
    ByteStream shorter(corpus, 16, 4, 3, ring);
    directory.write("text with space.txt", "short");
    EXPECT_NE(message_of([&] { shorter.next(); }).find("text with space.txt"), std::string::npos);
  }
}

TEST(ByteStream, AnErrorInTheMiddleComesAfterTheBatchesBeforeIt) {
  const TemporaryDirectory directory;
  const auto path = directory.write("a.txt", random_text(20000, 2));
  ByteStream whole(find_corpus(path), 16, 4, 3, 600), cut(find_corpus(path), 16, 4, 3, 600);
  EXPECT_EQ(cut.next().bytes, whole.next().bytes);
  std::vector<std::vector<std::uint8_t>> rest;
  for (int i = 0; i < 200; ++i) rest.push_back(whole.next().bytes);
  std::filesystem::resize_file(path, 10);
  int delivered = 0;
  const std::string message = message_of([&] {
    while (delivered < 200) {
      EXPECT_EQ(cut.next().bytes, rest[delivered]);
      ++delivered;
    }
  });
  EXPECT_NE(message.find("a.txt"), std::string::npos) << message;
  EXPECT_LT(delivered, 200);
}

TEST(ByteStream, CanBeDroppedAtAnyMoment) {
  const TemporaryDirectory directory;
  const Corpus corpus = find_corpus(directory.write("a.txt", random_text(200000, 2)));
  for (int i = 0; i < 50; ++i) {
    ByteStream stream(corpus, 16, 4, 3, i % 2 == 0 ? 64 << 20 : 20000);
    for (int j = 0; j < i % 5; ++j) stream.next();
    if (i % 3 == 0) stream.seek({2, 0, 1});
  }
}

TEST(Order, ShuffleIsFisherYatesOfSplitmix64) {
  std::vector<int> items(8);
  std::iota(items.begin(), items.end(), 0);
  shuffle(std::span(items), base::SplitMix64(0x12345678));
  EXPECT_EQ(items, (std::vector<int>{5, 2, 1, 0, 4, 6, 3, 7}));
}

TEST(Order, FilesAreShuffledEveryEpoch) {
  Corpus corpus;
  for (int i = 0; i < 50; ++i) corpus.files.push_back({"f" + std::to_string(i), "", 100, 0});
  corpus.bytes = 5000;
  const Geometry geometry(5000, 10, 1, 1 << 20);
  const EpochOrder a(geometry, corpus, 0), b(geometry, corpus, 1), again(geometry, corpus, 0);
  EXPECT_NE(a.files, b.files);
  EXPECT_EQ(a.files, again.files);
  auto sorted = a.files;
  std::ranges::sort(sorted);
  for (std::uint32_t i = 0; i < 50; ++i) EXPECT_EQ(sorted[i], i);
}

TEST(Order, TheRingHoldsNoMoreThanItsBytes) {
  Corpus corpus;
  corpus.files.push_back({"f", "", 1ULL << 40, 0});
  corpus.bytes = 1ULL << 40;
  const Geometry geometry(corpus.bytes, 256, 1, 64 << 20);
  EXPECT_TRUE(geometry.ring);
  EXPECT_EQ(geometry.per_block * 256, 1ULL << 20);
  EXPECT_EQ(geometry.per_generation, 32U);
  const EpochOrder order(geometry, corpus, 0);
  EXPECT_EQ(order.generations(geometry), (1ULL << 20) / 32);
}

// Computed by a separate program from the documented recipe: a resumed run must find the same order for ever.
TEST(Order, PinnedOrderOfAFixture) {
  Corpus corpus;
  for (int i = 0; i < 6; ++i) corpus.files.push_back({"f" + std::to_string(i), "", 20, 0});
  corpus.bytes = 120;
  const Geometry geometry(120, 10, 42, 1 << 20);
  const EpochOrder order(geometry, corpus, 2);
  const GenerationOrder generation(geometry, order, 0);
  EXPECT_EQ(order.files, (std::vector<std::uint32_t>{4, 5, 2, 3, 1, 0}));
  EXPECT_EQ(order.offset, 8U);
  EXPECT_EQ(generation.windows, (std::vector<std::uint32_t>{2, 10, 6, 5, 8, 7, 3, 1, 9, 0, 4}));
}

}  // namespace
}  // namespace dormouse::data
