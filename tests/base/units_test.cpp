#include "base/units.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"

namespace dormouse::base {
namespace {

TEST(Units, CountsTakeDecimalAndBinarySuffixes) {
  EXPECT_EQ(parse_count("8", "--batch"), 8);
  EXPECT_EQ(parse_count("0", "--batch"), 0);
  EXPECT_EQ(parse_count("2K", "--batch"), 2000);
  EXPECT_EQ(parse_count("3M", "--batch"), 3000000);
  EXPECT_EQ(parse_count("1G", "--batch"), 1000000000);
  EXPECT_EQ(parse_count("64Ki", "--batch"), 65536);
  EXPECT_EQ(parse_count("1Mi", "--batch"), 1048576);
  EXPECT_EQ(parse_count("2Gi", "--batch"), 2147483648LL);
  EXPECT_EQ(parse_count("9223372036854775807", "--batch"), INT64_MAX);
}

TEST(Units, OtherCountsAreUsageErrors) {
  for (const char* bad : {"", "-1", "+1", " 1", "1 ", "1.5", "1.5K", "1k", "1KB", "Ki", "K", "0x10", "1e3", "nan", "9223372036854775808",
                          "9223372036854775807K", "18446744073709551616"}) {
    EXPECT_THROW(parse_count(bad, "--batch"), UsageError) << bad;
  }
}

TEST(Units, ACountThatDoesNotFitNamesTheLargest) {
  for (const char* large : {"9223372036854775808", "9223372036854775807K", "99999999999999999999999"}) {
    try {
      parse_count(large, "--seed");
      FAIL() << large;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()), std::string("--seed ") + large + ": must be from 0 to 9223372036854775807");
    }
  }
}

TEST(Units, ACountOutsideItsRangeNamesTheRange) {
  const auto refusal = [](const char* text, std::int64_t least, std::int64_t most) -> std::string {
    try {
      parse_count(text, "--batch", least, most);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal("4096", 1, 4096), "accepted");
  EXPECT_EQ(refusal("5K", 1, 4096), "--batch 5K: must be from 1 to 4096");
  EXPECT_EQ(refusal("0", 1, 4096), "--batch 0: must be from 1 to 4096");
  EXPECT_EQ(refusal("1", 2, INT64_MAX), "--batch 1: must be at least 2");
  EXPECT_EQ(refusal("many", 1, 4096), "--batch: \"many\" is not a whole number; write it as 8, 2K or 64Ki");
}

TEST(Units, BadValuesAreEscapedInTheMessage) {
  try {
    parse_count("\x1b[2J\n", "--batch");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("\"\\x1b[2J\\n\""), std::string::npos) << error.what();
  }
}

TEST(Units, DurationsTakeSecondsMinutesAndHours) {
  EXPECT_DOUBLE_EQ(parse_duration("90", "--time-limit"), 90);
  EXPECT_DOUBLE_EQ(parse_duration("90s", "--time-limit"), 90);
  EXPECT_DOUBLE_EQ(parse_duration("10m", "--time-limit"), 600);
  EXPECT_DOUBLE_EQ(parse_duration("1.5h", "--time-limit"), 5400);
  EXPECT_DOUBLE_EQ(parse_duration("1h30m", "--time-limit"), 5400);
  EXPECT_DOUBLE_EQ(parse_duration("1m 05s", "--time-limit"), 65);
  EXPECT_DOUBLE_EQ(parse_duration("1h 00m", "--time-limit"), 3600);
  for (const char* bad : {"",       "s",     "0",  "0h",   "-5m",    "1d",  "1h30", "1m1h", "1m1m", "1h-5m", "1h ",
                          "1h  5m", "1h5 m", "hm", "0h0s", "1e300h", "inf", "nan",  "1ms",  " 1s",  "5 m"}) {
    EXPECT_THROW(parse_duration(bad, "--time-limit"), UsageError) << bad;
  }
}

TEST(Units, NumbersMustBeFiniteAndWhole) {
  EXPECT_DOUBLE_EQ(parse_number("-2.5e-4", "--lr"), -2.5e-4);
  for (const char* bad : {"", "inf", "nan", "1e999", "1x", " 1", "0x1p3", "--1"})
    EXPECT_THROW(parse_number(bad, "--lr"), UsageError) << bad;
}

TEST(Units, BytesForPeople) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.0 kB");
  EXPECT_EQ(human_bytes(3140000), "3.1 MB");
  EXPECT_EQ(human_bytes(104000000), "104 MB");
  EXPECT_EQ(human_bytes(999949), "1.0 MB");
  EXPECT_EQ(human_bytes(99960), "100 kB");
  EXPECT_EQ(human_bytes(UINT64_MAX), "18.4 EB");
}

TEST(Units, CountsForPeople) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1204), "1,204");
  EXPECT_EQ(human_count(1234567), "1,234,567");
  EXPECT_EQ(human_count(1, "thread"), "1 thread");
  EXPECT_EQ(human_count(0, "thread"), "0 threads");
}

TEST(Units, DurationsForPeople) {
  EXPECT_EQ(human_duration(0), "0s");
  EXPECT_EQ(human_duration(7.4), "7s");
  EXPECT_EQ(human_duration(59.6), "1m 00s");
  EXPECT_EQ(human_duration(250), "4m 10s");
  EXPECT_EQ(human_duration(3720), "1h 02m");
  EXPECT_EQ(human_duration(1.0 / 0.0), "?");
}

TEST(Units, NearestFindsTyposAndNothingFarAway) {
  constexpr std::array<std::string_view, 4> kWords = {"d_model", "depth", "heads", "--steps"};
  EXPECT_EQ(nearest("d_modle", kWords.data(), kWords.size()), "d_model");
  EXPECT_EQ(nearest("dept", kWords.data(), kWords.size()), "depth");
  EXPECT_EQ(nearest("--step", kWords.data(), kWords.size()), "--steps");
  EXPECT_EQ(nearest("temperature", kWords.data(), kWords.size()), "");
  EXPECT_EQ(nearest("x", kWords.data(), kWords.size()), "");
  EXPECT_EQ(nearest("", kWords.data(), kWords.size()), "");
  EXPECT_EQ(nearest(std::string(1000000, 'a'), kWords.data(), kWords.size()), "");
}

}  // namespace
}  // namespace dormouse::base
