#include <cstring>
#include <thread>

#include "support.h"

namespace dormouse::tests {
namespace {

struct Text {
  std::string bytes;
  std::size_t at = 0, piece = SIZE_MAX;  // at most that many a call
};

int source(void* user, unsigned char* bytes, size_t capacity, size_t* count) {
  Text& text = *static_cast<Text*>(user);
  *count = std::min({capacity, text.piece, text.bytes.size() - text.at});
  std::memcpy(bytes, text.bytes.data() + text.at, *count);
  text.at += *count;
  return 0;
}

struct Outcome {
  int status;
  std::string bytes;
  dormouse_archived stats;
};

using Call = int (*)(dormouse_model*, dormouse_source, void*, dormouse_sink, void*, dormouse_archived*);

int compress_small_blocks(dormouse_model* model, dormouse_source from, void* from_user, dormouse_sink to, void* to_user,
                          dormouse_archived* stats) {
  return dormouse_compress(model, 300, from, from_user, to, to_user, stats);
}

Outcome run(Call call, const ModelHandle& model, const std::string& bytes, std::size_t piece = SIZE_MAX) {
  Outcome out = {};
  out.stats.size = sizeof out.stats;
  Text text{bytes, 0, piece};
  Take take = into(out.bytes);
  out.status = call(model.get(), source, &text, sink, &take, &out.stats);
  if (out.status != DORMOUSE_OK) expect_sentence("archive");
  return out;
}

// Text the model likes, so that blocks are coded.
std::string liked(const ModelHandle& model, std::int64_t bytes) { return generated(session_of(model), "the", bytes, options_with(0.5)); }

class Archive : public FolderTest {
 protected:
  ModelHandle model_ = open(kExports / "bf16.dmexp");
};

TEST_F(Archive, WhatWasCompressedComesBack) {
  std::string noise;
  std::uint32_t state = 1;
  for (int i = 0; i < 2000; ++i) noise += static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  for (const std::string& text : {std::string(), std::string("x"), std::string(3000, '\0'), noise, liked(model_, 2500)}) {
    const auto packed = run(compress_small_blocks, model_, text, 77);
    ASSERT_EQ(packed.status, DORMOUSE_OK) << dormouse_last_error();
    EXPECT_EQ(packed.stats.original_bytes, text.size());
    EXPECT_EQ(packed.stats.archive_bytes, packed.bytes.size());
    const auto back = run(dormouse_decompress, model_, packed.bytes, 50);
    ASSERT_EQ(back.status, DORMOUSE_OK) << dormouse_last_error();
    EXPECT_EQ(back.bytes, text);
    EXPECT_EQ(back.stats.blocks, packed.stats.blocks);
  }
}

TEST_F(Archive, IsThatOfTheProgram) {
  const std::string text = liked(model_, 2000);
  write_text(folder_ / "text", text);
  const auto packed = run(compress_small_blocks, model_, text);
  EXPECT_GT(packed.stats.blocks, packed.stats.raw_blocks);
  const std::string model = (kExports / "bf16.dmexp").string(), in = " <" + (folder_ / "text").string();
  EXPECT_EQ(packed.bytes, program("compress " + model + " - - --block 300 2>&-" + in));
}

TEST_F(Archive, ChangedOrCutIsDamaged) {
  const auto packed = run(compress_small_blocks, model_, liked(model_, 900));
  ASSERT_EQ(packed.status, DORMOUSE_OK);
  for (std::size_t i = 0; i < packed.bytes.size(); i += i < 64 ? 1 : 5) {
    std::string changed = packed.bytes;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    ASSERT_NE(run(dormouse_decompress, model_, changed).status, DORMOUSE_OK) << "byte " << i;
    const int cut = run(dormouse_decompress, model_, packed.bytes.substr(0, i)).status;
    ASSERT_EQ(cut, i == 0 ? DORMOUSE_REFUSED : DORMOUSE_DAMAGED) << "cut to " << i;
  }
  EXPECT_EQ(run(dormouse_decompress, model_, packed.bytes + "x").status, DORMOUSE_DAMAGED);
  EXPECT_EQ(run(dormouse_decompress, model_, "plain text").status, DORMOUSE_REFUSED);
  EXPECT_EQ(run(dormouse_decompress, model_, packed.bytes).status, DORMOUSE_OK);
}

TEST_F(Archive, OfAnotherModelIsRefusedBeforeAByteIsWritten) {
  const auto packed = run(compress_small_blocks, model_, liked(model_, 900));
  const auto out = run(dormouse_decompress, open(kExports / "int8.dmexp"), packed.bytes);
  EXPECT_EQ(out.status, DORMOUSE_REFUSED);
  EXPECT_NE(std::string(dormouse_last_error()).find("another model"), std::string::npos);
  EXPECT_EQ(out.bytes, "");
}

TEST_F(Archive, CallbacksStopItAndAreNotTrusted) {
  const std::string text = liked(model_, 1000);
  Text from{text};
  std::size_t taken = 0;
  Take take = [&](const std::string& bytes) { return (taken += bytes.size()) > 60 ? 1 : 0; };
  EXPECT_EQ(dormouse_compress(model_.get(), 300, source, &from, sink, &take, nullptr), DORMOUSE_STOPPED);
  const auto stop = [](void*, unsigned char*, size_t, size_t*) { return 1; };
  EXPECT_EQ(dormouse_compress(model_.get(), 300, stop, nullptr, sink, &take, nullptr), DORMOUSE_STOPPED);
  const auto lie = [](void*, unsigned char*, size_t capacity, size_t* count) {
    *count = capacity + 1;
    return 0;
  };
  EXPECT_EQ(dormouse_compress(model_.get(), 300, lie, nullptr, sink, &take, nullptr), DORMOUSE_USAGE);
  EXPECT_EQ(dormouse_decompress(model_.get(), lie, nullptr, sink, &take, nullptr), DORMOUSE_USAGE);
  from.at = 0;
  EXPECT_EQ(dormouse_compress(model_.get(), (1U << 20) + 1, source, &from, sink, &take, nullptr), DORMOUSE_USAGE);
  EXPECT_EQ(run(compress_small_blocks, model_, text).status, DORMOUSE_OK);
}

TEST_F(Archive, ThreadsAtOnceGetTheirOwnArchives) {
  const std::vector<std::string> texts = {liked(model_, 1500), std::string(1500, 'a')};
  std::vector<std::string> back(2);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      const auto packed = run(compress_small_blocks, model_, texts[i], 100);
      back[i] = run(dormouse_decompress, model_, packed.bytes, 100).bytes;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(back, texts);
}

}  // namespace
}  // namespace dormouse::tests
