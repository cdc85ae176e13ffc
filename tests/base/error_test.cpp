#include "base/error.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace dormouse::base {
namespace {

TEST(Escape, LeavesPlainTextAndValidUtf8Alone) {
  EXPECT_EQ(escape("runs/a b-c.toml"), "runs/a b-c.toml");
  EXPECT_EQ(escape("Größe \xE2\x82\xAC \xF0\x9F\x90\xAD"), "Größe \xE2\x82\xAC \xF0\x9F\x90\xAD");
  EXPECT_EQ(escape(""), "");
}

TEST(Escape, ShowsControlBytesQuotesAndBackslashes) {
  EXPECT_EQ(escape("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(escape("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(escape(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(escape("say \"\\n\""), "say \\\"\\\\n\\\"");
}

TEST(Escape, ShowsBrokenUtf8ByteByByte) {
  EXPECT_EQ(escape("a\xFFz"), "a\\xffz");
  EXPECT_EQ(escape("\xC3"), "\\xc3");
  EXPECT_EQ(escape("\xC0\xAF"), "\\xc0\\xaf");           // overlong "/"
  EXPECT_EQ(escape("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
}

TEST(Escape, ShowsInvisibleCharactersThatSteerATerminal) {
  EXPECT_EQ(escape("\xC2\x9B"
                   "31m"),
            "\\xc2\\x9b31m");                            // C1 CSI
  EXPECT_EQ(escape("\xE2\x80\xA8"), "\\xe2\\x80\\xa8");  // line separator
  EXPECT_EQ(escape("\xE2\x80\xAE"
                   "abc"),
            "\\xe2\\x80\\xae"
            "abc");                                   // right-to-left override
  EXPECT_EQ(escape("\xE2\x80\x93"), "\xE2\x80\x93");  // an en dash is harmless
}

TEST(Escape, CutsLongValuesAtACharacter) {
  EXPECT_EQ(escape("abcdef", 6), "abcdef");
  EXPECT_EQ(escape("abcdefg", 6), "abcdef...");
  EXPECT_EQ(escape("abcde\xC3\xA9", 6), "abcde...");
}

TEST(Utf8, KnowsTheLengthOfEveryBoundaryCharacter) {
  const std::string_view good[] = {"\x7F",         "\xC2\x80",     "\xDF\xBF",         "\xE0\xA0\x80",    "\xED\x9F\xBF",
                                   "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"};
  for (const auto text : good) EXPECT_EQ(utf8_length(text, 0), text.size()) << escape(text);
  const std::string_view bad[] = {
      "\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", ""};
  for (const auto text : bad) EXPECT_EQ(utf8_length(text, 0), 0U) << escape(text);
}

}  // namespace
}  // namespace dormouse::base
