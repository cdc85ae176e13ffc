#include "report/metrics.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/random.h"
#include "folder.h"

namespace dormouse::report {
namespace {

namespace fs = std::filesystem;

class MetricsTest : public tests::FolderTest {
 protected:
  std::string text() const {
    const auto bytes = base::read_file(path_);
    return {bytes.begin(), bytes.end()};
  }

  const fs::path path_ = folder_ / "metrics.jsonl";
};

TEST_F(MetricsTest, WritesOneObjectPerLineInTheGivenOrder) {
  MetricsWriter writer(path_);
  writer.write({{"step", 3}, {"ce", 1.25}, {"event", "eval"}, {"best", true}});
  writer.write(std::vector<Metric>{{"step", INT64_MIN}, {"lr", 2e-4}});
  writer.write({});
  EXPECT_EQ(text(), "{\"step\":3,\"ce\":1.25,\"event\":\"eval\",\"best\":true}\n{\"step\":-9223372036854775808,\"lr\":2e-04}\n{}\n");
}

TEST_F(MetricsTest, NonFiniteNumbersAreNull) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<Metric> metrics = {{"a", std::nan("")}, {"b", kInfinity}, {"c", -kInfinity}};
  EXPECT_EQ(to_json(metrics), "{\"a\":null,\"b\":null,\"c\":null}");
}

TEST_F(MetricsTest, EveryByteInAStringGivesValidJsonThatReadsBack) {
  std::string ascii;
  for (int c = 0; c < 128; ++c) ascii += static_cast<char>(c);
  const std::vector<Metric> metrics = {{ascii, ascii + "Größe \xF0\x9F\x90\xAD"}};
  const std::string line = to_json(metrics);
  for (const char c : line) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20);
  const auto parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed.at(ascii).get<std::string>(), ascii + "Größe \xF0\x9F\x90\xAD");
  const std::vector<Metric> broken = {{"k", "a\xFF\xC3z"}};
  EXPECT_EQ(nlohmann::json::parse(to_json(broken)).at("k").get<std::string>(), "a\xEF\xBF\xBD\xEF\xBF\xBDz");
}

TEST_F(MetricsTest, RandomDoublesReadBackBitForBit) {
  base::SplitMix64 random(5);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(random.next());
    if (!std::isfinite(value)) continue;
    const std::vector<Metric> metrics = {{"x", value}};
    EXPECT_EQ(nlohmann::json::parse(to_json(metrics)).at("x").get<double>(), value);
  }
}

void append(const fs::path& path, std::string_view text) {
  base::File::open_append(path).write({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

TEST_F(MetricsTest, AResumeAppends) {
  { MetricsWriter(path_).write({{"step", 1}}); }
  MetricsWriter writer(path_);
  EXPECT_EQ(writer.mended_bytes(), 0U);
  writer.write({{"step", 2}});
  EXPECT_EQ(text(), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(MetricsTest, ATornLastLineIsKeptAsTheTextOfALineOfItsOwn) {
  { MetricsWriter(path_).write({{"step", 1}}); }
  append(path_, "{\"s\xFF");
  MetricsWriter writer(path_);
  EXPECT_EQ(writer.mended_bytes(), 4U);
  writer.write({{"step", 3}});
  EXPECT_EQ(text(), "{\"step\":1}\n{\"event\":\"torn\",\"bytes\":4,\"text\":\"{\\\"s\xEF\xBF\xBD\"}\n{\"step\":3}\n");
}

TEST_F(MetricsTest, ATornLineThatTellsOfATornLineIsNotWrappedAgain) {
  append(path_, "{\"event\":\"torn\",\"bytes\":4,\"te");
  MetricsWriter(path_).write({{"step", 3}});
  EXPECT_EQ(text(), "{\"step\":3}\n");
}

TEST_F(MetricsTest, AWholeLastLineGetsTheNewlineItLacks) {
  append(path_, "{\"step\":1}");
  MetricsWriter writer(path_);
  EXPECT_EQ(writer.mended_bytes(), 10U);
  writer.write({{"step", 2}});
  EXPECT_EQ(text(), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(MetricsTest, ATornLineLongerThanABlockIsMovedWhole) {
  const std::string torn(200000, 'x');
  const std::string kept = "{\"event\":\"torn\",\"bytes\":200000,\"text\":\"" + torn + "\"}\n";
  { MetricsWriter(path_).write({{"step", 1}}); }
  append(path_, torn);
  { MetricsWriter(path_).write({{"step", 2}}); }
  EXPECT_EQ(text(), "{\"step\":1}\n" + kept + "{\"step\":2}\n");
  fs::remove(path_);
  append(path_, torn);
  { MetricsWriter(path_).write({{"step", 3}}); }
  EXPECT_EQ(text(), kept + "{\"step\":3}\n");
}

TEST_F(MetricsTest, AnUnwritablePlaceIsAnErrorNamingIt) {
  try {
    MetricsWriter writer(folder_ / "none" / "m.jsonl");
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("none/m.jsonl\": No such file"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace dormouse::report
