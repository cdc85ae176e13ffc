#include "decode/printer.h"

#include <gtest/gtest.h>

#include <vector>

namespace dormouse::decode {
namespace {

std::vector<std::string> pieces(std::string_view text, bool raw = false) {
  std::vector<std::string> out;
  Printer printer(raw, [&](std::string_view piece) { out.emplace_back(piece); });
  for (const char c : text) printer.put(static_cast<std::uint8_t>(c));
  printer.finish();
  return out;
}

std::string joined(std::string_view text, bool raw = false) {
  std::string all;
  for (const auto& piece : pieces(text, raw)) all += piece;
  return all;
}

TEST(Printer, WholeCharactersComeInOnePiece) {
  EXPECT_EQ(pieces("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x90\xAD"),
            (std::vector<std::string>{"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x90\xAD"}));
}

TEST(Printer, ControlBytesAreMadeVisible) {
  EXPECT_EQ(joined("a\x1b[31m\n\tb\x7f\r"), "a\\x1b[31m\n\tb\\x7f\\x0d");
  EXPECT_EQ(joined("\xC2\x9B"), "\\xc2\\x9b") << "C1: a terminal would take it for an escape sequence";
  EXPECT_EQ(joined(std::string_view("\0", 1)), "\\x00");
}

TEST(Printer, InvalidUtf8IsEscapedAndTheNextCharacterSurvives) {
  EXPECT_EQ(joined("\xE2\x82z"), "\\xe2\\x82z");
  EXPECT_EQ(joined("\x80\xFF"), "\\x80\\xff");
  EXPECT_EQ(joined("\xC0\x80"), "\\xc0\\x80");           // overlong
  EXPECT_EQ(joined("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(joined("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(joined("\xE2\xC3\xA9"), "\\xe2\xC3\xA9");
  EXPECT_EQ(joined("\xF0\x9F\x90"), "\\xf0\\x9f\\x90") << "held bytes are not lost at the end";
}

TEST(Printer, RawPassesEveryByte) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(joined(all, true), all);
}

struct Watched {
  std::string released;
  bool stopped = false;
};

Watched watch(std::vector<std::string> stops, std::string_view text) {
  StopWatch watcher(std::move(stops));
  Watched result;
  for (const char c : text) {
    result.stopped = watcher.put(static_cast<std::uint8_t>(c), result.released);
    if (result.stopped) return result;
  }
  result.released += watcher.rest();
  return result;
}

TEST(StopWatch, EndsBeforeTheStopAndReleasesNearMisses) {
  EXPECT_EQ(watch({"END"}, "so EN be it END more").released, "so EN be it ");
  EXPECT_TRUE(watch({"END"}, "END").stopped);
  EXPECT_EQ(watch({"END"}, "the EN").released, "the EN");
  EXPECT_FALSE(watch({"END"}, "the EN").stopped);
  EXPECT_EQ(watch({"aab"}, "aaab").released, "a") << "overlapping starts";
  EXPECT_EQ(watch({"xyz", "\n"}, "one\ntwo").released, "one");
  EXPECT_EQ(watch({}, "text").released, "text");
  EXPECT_EQ(watch({""}, "text").released, "text");
}

}  // namespace
}  // namespace dormouse::decode
