#include "train/standing.h"

#include <gtest/gtest.h>

namespace dormouse::train {
namespace {

constexpr const char* kOrders = "uniform 8\nunigram 4.7\nkneser-ney 1 4.5\nkneser-ney 2 3.5\nwitten-bell 1 4.6\n";

TEST(Standing, NamesTheBestKneserNeyAndTheCompressorsToBeat) {
  const std::string line = to_beat(std::string(kOrders) + "gzip alone 3.4\ngzip conditional 3.2\n", 12345);
  EXPECT_EQ(line, "kneser-ney 2 3.500 BPB on the same 12,345 bytes; gzip 3.200");
}

// A corpus above 8 MiB has no compressor anchors, one above 32 MiB none at all.
TEST(Standing, StandsWithoutCompressorsAndWithoutAnchors) {
  EXPECT_EQ(to_beat(kOrders, 100), "kneser-ney 2 3.500 BPB on the same 100 bytes");
  EXPECT_NE(to_beat("", 100).find("not computed"), std::string::npos);
  EXPECT_EQ(standing(kOrders, 3.6).find("compressors"), std::string::npos);
  EXPECT_EQ(standing("", 3.6), "  this model               3.6000 bits per byte");
}

TEST(Standing, SaysWhatIsBeatenAndWhatIsNext) {
  const std::string text = standing(kOrders, 4.0);
  EXPECT_NE(text.find("better than kneser-ney 1 (4.500)"), std::string::npos) << text;
  EXPECT_NE(text.find("next to beat: kneser-ney 2 (3.500)"), std::string::npos) << text;
}

}  // namespace
}  // namespace dormouse::train
