#include "config/toml.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"

namespace dormouse::config {
namespace {

struct Sample {
  bool gated = true;
  std::int64_t d_model = 64;
  double lr = 0.003;
  std::string optimizer = "mix";
  std::vector<std::int64_t> sizes = {2, 3};
};

template <class Config, class Visit>
void for_each_field(Config& config, Visit&& visit) {
  visit(Field{.name = "gated", .doc = "use the gate"}, config.gated);
  visit(Field{.name = "d_model", .doc = "width", .min = 1, .max = 65536}, config.d_model);
  visit(Field{.name = "lr", .doc = "learning rate", .min = 0}, config.lr);
  visit(Field{.name = "optimizer", .doc = "which", .choices = "mix|adamw"}, config.optimizer);
  visit(Field{.name = "sizes", .doc = "orders", .min = 1, .max = 8}, config.sizes);
}

template <class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const base::Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "more than one line: " << error.what();
    return error.what();
  }
  return "";
}

Sample read(std::string_view text) {
  Sample sample;
  read_table(sample, parse_toml(text, "a.toml")[""], "a.toml");
  return sample;
}

std::string refusal(std::string_view text) {
  return message_of([&] { read(text); });
}

std::string setting(std::string_view key, std::string_view text) {
  Sample sample;
  return message_of([&] { EXPECT_TRUE(set_field(sample, key, text)); });
}

TEST(Toml, ReadsEveryTypeAndSection) {
  const auto sections =
      parse_toml("top = 1\n[model]\nflag = true\nwhole = 0x10\nreal = 2.5\ntext = 'a'\nlist = [1, 2]\nempty = []\n", "a.toml");
  ASSERT_EQ(sections.size(), 2U);
  EXPECT_EQ(std::get<std::int64_t>(sections.at("").at("top")), 1);
  const Table& model = sections.at("model");
  EXPECT_EQ(std::get<bool>(model.at("flag")), true);
  EXPECT_DOUBLE_EQ(std::get<double>(model.at("real")), 2.5);
  EXPECT_EQ(std::get<std::string>(model.at("text")), "a");
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(model.at("list")), (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(std::get<std::vector<std::int64_t>>(model.at("empty")).empty());
  EXPECT_EQ(std::get<std::string>(parse_toml("a = \"\"\"\\\n \xC3\xA9\"\"\"", "a.toml").at("").at("a")), "\xC3\xA9");
  EXPECT_TRUE(parse_toml("", "a.toml").empty());
}

TEST(Toml, RefusesWhatIsNotFlatWithFileAndLine) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"a = 1\na = 2\n", "a.toml, line 2"},
      {"x = 1\n[a]\n[a]\n", "a.toml, line 3"},
      {"a = \n", "a.toml, line 1"},
      {"a = 1\nb = \"\xFF\"\n", "a.toml, line 2"},
      {"a = 99999999999999999999\n", "a.toml, line 1"},
      {"a = 1979-05-27\n", "a.toml, line 1: a is a date or time"},
      {"[a.b]\nc = 1\n", "b is a table inside a table"},
      {"a = [1, 2.5]\n", "a is a list with something else than whole numbers"},
      {"a = [[1]]\n", "a is a list with something else than whole numbers"},
      {"[[tensors]]\nname = 'x'\n", "tensors is a list with something else"},
      {"[\"\"]\na = 1\n", "a section without a name"},
      {"just text", "a.toml, line 1"},
      {"[+]\na = 1\n", "a.toml: not TOML"},
      {"\xC3\xA9 = 1\n", "a.toml, line 1"},
      {"a\xC3\xA9 = 1\n", "a.toml, line 1"},
      {"[\xC3\xA9]\n", "a.toml: not TOML"},
  };
  for (const auto& one : cases) {
    const std::string message = message_of([&] { parse_toml(one.first, "a.toml"); });
    EXPECT_NE(message.find(one.second), std::string::npos) << one.first << " -> " << message;
  }
}

TEST(Toml, DeepAndLargeTextsAreRefusedWithoutHarm) {
  const auto refused = [](const std::string& text) { return message_of([&] { parse_toml(text, "a.toml"); }) != ""; };
  std::string key = "a";
  for (int i = 0; i < 300000; ++i) key += ".a";
  EXPECT_TRUE(refused(key + " = 1\n"));
  EXPECT_TRUE(refused("[" + key + "]\n"));
  EXPECT_TRUE(refused("x = {" + key + " = 1}\n"));
  EXPECT_TRUE(refused("y = 'a \"'\nx = \"\"\"\"q\\\"\"\"\"\nz = ''''it's'''''\n" + key + " = 1\n"));
  EXPECT_TRUE(refused("x = " + std::string(100000, '[')));
  EXPECT_TRUE(refused("x = " + std::string(100000, '{')));
  EXPECT_TRUE(refused(std::string(8U << 20, '#')));
}

TEST(Toml, DotsInsideStringsAndCommentsAreNoKeys) {
  const std::string dots = "a.b.c.d.e.f.g.h.i.j.k.l.m";
  const auto sections = parse_toml("# " + dots + "\nx = \"" + dots + "\\\"" + dots + "\" # " + dots + "\ny = '" + dots + "'\nz = '''\n" +
                                       dots + "\\\n'''\n\"" + dots + "\" = 1\nlist = [1,\n 2]\n",
                                   "a.toml");
  EXPECT_EQ(std::get<std::string>(sections.at("").at("y")), dots);
  EXPECT_EQ(std::get<std::int64_t>(sections.at("").at(dots)), 1);
}

TEST(Toml, TheLineOfADeepKeyIsCountedOverEveryKindOfString) {
  const std::string message = message_of(
      [] { parse_toml("a = '''\nx\\\n'''\nb = \"\"\"\n\\\\\n\\\n\"\"\" # comment\nc = \"\\\\\"\n\na.a.a.a.a.a.a.a.a.a = 1\n", "a.toml"); });
  EXPECT_EQ(message, "a.toml, line 10: a key of more than 8 parts");
}

TEST(Toml, RandomTextNeverDoesMoreThanThrow) {
  constexpr std::string_view kAlphabet = "ab.=[]{}\"'\\#\n\r\t ,0123e+-:u_\xC3\xA9\xFFT";
  base::SplitMix64 random(7);
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::uint64_t length = random.below(40); length > 0; --length) text += kAlphabet[random.below(kAlphabet.size())];
    if (message_of([&] { parse_toml(text, "a.toml"); }).empty()) ++parsed;
  }
  EXPECT_GT(parsed, 100);
}

TEST(Toml, WritesValuesThatReadBackAsTheSameType) {
  const Value values[] = {true,
                          false,
                          std::int64_t{42},
                          INT64_MIN,
                          0.003,
                          1.0,
                          -0.0,
                          1e300,
                          5e-324,
                          0.1 + 0.2,
                          std::string("plain"),
                          std::string("quote \" backslash \\ \n\t\r\x1b\x7f Größe"),
                          std::string("zero \0 byte", 11),
                          std::vector<std::int64_t>{2, 3, 4},
                          std::vector<std::int64_t>{}};
  for (const Value& value : values) {
    const std::string text = to_toml(value);
    EXPECT_EQ(text.find('\n'), std::string::npos);
    const Value back = parse_toml("x = " + text + "\n", "a.toml").at("").at("x");
    EXPECT_TRUE(back == value) << text;
  }
  EXPECT_EQ(to_toml(0.003), "0.003");
  EXPECT_EQ(to_toml(1.0), "1.0");
  EXPECT_EQ(to_toml(std::vector<std::int64_t>{2, 3, 4}), "[2, 3, 4]");
  EXPECT_EQ(to_toml(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_THROW(to_toml(std::string("\xFF")), base::Error);
}

TEST(Toml, RandomDoublesReadBackBitForBit) {
  base::SplitMix64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(random.next());
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(std::get<double>(parse_toml("x = " + to_toml(value), "a.toml").at("").at("x")), value);
  }
}

TEST(Fields, ATableFillsTheStructAndAbsentKeysKeepTheirValue) {
  const Sample sample = read("d_model = 128\nlr = 1\nsizes = [4]\noptimizer = 'adamw'\n");
  EXPECT_EQ(sample.d_model, 128);
  EXPECT_DOUBLE_EQ(sample.lr, 1);
  EXPECT_EQ(sample.sizes, std::vector<std::int64_t>{4});
  EXPECT_EQ(sample.optimizer, "adamw");
  EXPECT_TRUE(sample.gated);
}

TEST(Fields, WhatIsWrittenReadsBack) {
  Sample sample;
  sample.lr = 1.0 / 3;
  sample.sizes = {8, 1};
  sample.gated = false;
  const std::string text = write_table(sample);
  EXPECT_EQ(text.substr(0, 32), "gated = false\nd_model = 64\nlr = ");
  EXPECT_EQ(write_table(read(text)), text);
}

TEST(Fields, WrongValuesNameKeyValueFileAndRange) {
  EXPECT_EQ(refusal("d_model = 'x'"), "d_model = \"x\" in a.toml: expected a whole number from 1 to 65536");
  EXPECT_EQ(refusal("d_model = 0"), "d_model = 0 in a.toml: expected a whole number from 1 to 65536");
  EXPECT_EQ(refusal("d_model = 65537"), "d_model = 65537 in a.toml: expected a whole number from 1 to 65536");
  EXPECT_EQ(refusal("d_model = 64.0"), "d_model = 64.0 in a.toml: expected a whole number from 1 to 65536");
  EXPECT_EQ(refusal("d_model = true"), "d_model = true in a.toml: expected a whole number from 1 to 65536");
  EXPECT_EQ(refusal("lr = -1"), "lr = -1 in a.toml: expected a number of at least 0");
  EXPECT_EQ(refusal("lr = nan"), "lr = nan in a.toml: expected a number of at least 0");
  EXPECT_EQ(refusal("lr = inf"), "lr = inf in a.toml: expected a number of at least 0");
  EXPECT_EQ(refusal("gated = 1"), "gated = 1 in a.toml: expected true or false");
  EXPECT_EQ(refusal("optimizer = 'mi'"), "optimizer = \"mi\" in a.toml: expected one of mix, adamw");
  EXPECT_EQ(refusal("optimizer = 'mix|adamw'"), "optimizer = \"mix|adamw\" in a.toml: expected one of mix, adamw");
  EXPECT_EQ(refusal("optimizer = ''"), "optimizer = \"\" in a.toml: expected one of mix, adamw");
  EXPECT_EQ(refusal("sizes = [1, 9]"), "sizes = [1, 9] in a.toml: expected a list of whole numbers from 1 to 8");
  EXPECT_EQ(refusal("sizes = 1"), "sizes = 1 in a.toml: expected a list of whole numbers from 1 to 8");
}

TEST(Fields, ValuesAndFileNamesFromOutsideAreEscapedAndCut) {
  Sample sample;
  const std::string message = message_of([&] {
    read_table(sample, Table{{"optimizer", std::string("\x1b[2J\n") + std::string(500, 'x')}}, "bad\nname");
  });
  EXPECT_EQ(message.substr(0, 26), "optimizer = \"\\x1b[2J\\nxxxx");
  EXPECT_NE(message.find("...\" in bad\\nname: expected"), std::string::npos) << message;
}

TEST(Fields, UnknownKeysNameTheNearestOrAllOrTheHint) {
  EXPECT_EQ(refusal("d_modle = 1"), "unknown key \"d_modle\" in a.toml; did you mean d_model?");
  EXPECT_EQ(refusal("temperature = 1"), "unknown key \"temperature\" in a.toml; the keys are gated, d_model, lr, optimizer, sizes");
  EXPECT_EQ(message_of([] {
              unknown_key("temperature", "--set", {"lr", "sizes"}, "see the list");
            }),
            "unknown key \"temperature\" in --set; see the list");
}

TEST(Fields, SetTakesTextOfEveryType) {
  Sample sample;
  for (const char* yes : {"true", "yes", "on", "1"}) {
    sample.gated = false;
    EXPECT_TRUE(set_field(sample, "gated", yes));
    EXPECT_TRUE(sample.gated) << yes;
  }
  for (const char* no : {"false", "no", "off", "0"}) {
    sample.gated = true;
    EXPECT_TRUE(set_field(sample, "gated", no));
    EXPECT_FALSE(sample.gated) << no;
  }
  EXPECT_TRUE(set_field(sample, "d_model", "2K"));
  EXPECT_EQ(sample.d_model, 2000);
  EXPECT_TRUE(set_field(sample, "lr", "2e-4"));
  EXPECT_DOUBLE_EQ(sample.lr, 2e-4);
  EXPECT_TRUE(set_field(sample, "optimizer", "adamw"));
  EXPECT_EQ(sample.optimizer, "adamw");
  EXPECT_TRUE(set_field(sample, "sizes", "2,3,4"));
  EXPECT_EQ(sample.sizes, (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_TRUE(set_field(sample, "sizes", ""));
  EXPECT_TRUE(sample.sizes.empty());
  EXPECT_FALSE(set_field(sample, "absent", "1"));
}

TEST(Fields, SetRefusesWrongTextAsAUsageErrorAndKeepsTheValue) {
  EXPECT_EQ(setting("d_model", "x"), "d_model=\"x\": expected a whole number from 1 to 65536");
  EXPECT_EQ(setting("d_model", "-5"), "d_model=\"-5\": expected a whole number from 1 to 65536");
  EXPECT_EQ(setting("d_model", ""), "d_model=\"\": expected a whole number from 1 to 65536");
  EXPECT_EQ(setting("d_model", "1G"), "d_model=\"1G\": expected a whole number from 1 to 65536");
  EXPECT_EQ(setting("lr", "nan"), "lr=\"nan\": expected a number of at least 0");
  EXPECT_EQ(setting("lr", "1 "), "lr=\"1 \": expected a number of at least 0");
  EXPECT_EQ(setting("gated", "maybe"), "gated=\"maybe\": expected true or false");
  EXPECT_EQ(setting("optimizer", "sgd"), "optimizer=\"sgd\": expected one of mix, adamw");
  EXPECT_EQ(setting("sizes", "1,,2"), "sizes=\"1,,2\": expected a list of whole numbers from 1 to 8");
  EXPECT_EQ(setting("sizes", "1,"), "sizes=\"1,\": expected a list of whole numbers from 1 to 8");
  EXPECT_EQ(setting("sizes", "9"), "sizes=\"9\": expected a list of whole numbers from 1 to 8");
  Sample sample;
  EXPECT_THROW(set_field(sample, "d_model", "70000"), base::UsageError);
  EXPECT_EQ(sample.d_model, 64);
}

}  // namespace
}  // namespace dormouse::config
