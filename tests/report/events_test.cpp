#include "report/events.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <limits>
#include <set>

#include "folder.h"

namespace dormouse::report {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  const auto bytes = base::read_file(path);
  return {bytes.begin(), bytes.end()};
}

TEST(Events, Crc32cHasTheKnownValues) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  std::string rising;  // RFC 3720, B.4
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
  EXPECT_EQ(crc32c(std::string(rising.rbegin(), rising.rend())), 0x113FDB5CU);
}

TEST(Events, RecordsAreThoseOfTheIndependentStatement) {
  using Scalars = std::vector<std::pair<std::string, float>>;
  const std::string records =
      event_record(version_event(1700000000.25)) +
      event_record(scalar_event(1700000001.5, 1, Scalars{{"step/ce", 5.608056F}, {"step/skipped", 0.0F}})) +
      event_record(session_event(1700000002.5, 301)) +
      event_record(scalar_event(1700000003.5, std::int64_t{1} << 40,
                                Scalars{{"eval/bpb", -1.5F}, {"eval/" + std::string(200, 'n'), std::numeric_limits<float>::infinity()}}));
  EXPECT_EQ(records, text_of(fs::path(DORMOUSE_TEST_DIR) / "report/fixtures/events.tfevents"));
}

class EventWriterTest : public tests::FolderTest {
 protected:
  // Payloads of the records of the only file not in `known`, which then joins them; framing checked.
  std::vector<std::string> new_payloads() {
    std::vector<std::string> payloads;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (!known_.insert(entry.path()).second) continue;
      EXPECT_NE(entry.path().filename().native().find("tfevents"), std::string::npos);
      const std::string text = text_of(entry.path());
      for (std::size_t at = 0; at < text.size();) {
        std::uint64_t length = 0;
        std::memcpy(&length, text.data() + at, 8);
        payloads.push_back(text.substr(at + 12, length));
        EXPECT_EQ(text.substr(at, 16 + length), event_record(payloads.back()));
        at += 16 + length;
      }
    }
    return payloads;
  }

  std::set<fs::path> known_;
};

TEST_F(EventWriterTest, EveryStartWritesAFileOfItsOwn) {
  EventWriter(folder_).write(std::vector<Metric>{{"event", "step"}, {"step", 4}, {"ce", 2.5}});
  const auto first = new_payloads();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_NE(first[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(first[1].find("step/ce"), std::string::npos);
  EventWriter(folder_).write(std::vector<Metric>{{"event", "resume"}, {"step", 4}, {"elapsed", 1.0}});
  const auto second = new_payloads();
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[1].substr(9), session_event(0, 5).substr(9)) << "what was logged at step 4 stays";
  EXPECT_EQ(known_.size(), 2U);
}

TEST_F(EventWriterTest, OnlyNumbersWithAStepBecomeScalars) {
  EventWriter writer(folder_);
  writer.write(std::vector<Metric>{{"event", "start"}, {"parameters", 3}});
  writer.write(std::vector<Metric>{{"event", "end"}, {"step", 7}, {"note", "text"}, {"ok", true}});
  writer.write(std::vector<Metric>{{"event", "eval"}, {"step", 7}, {"bpb", 1.5}, {"bytes", 9}, {"note", "text"}});
  const auto payloads = new_payloads();
  ASSERT_EQ(payloads.size(), 2U);
  const std::vector<std::pair<std::string, float>> scalars = {{"eval/bpb", 1.5F}, {"eval/bytes", 9.0F}};
  EXPECT_EQ(payloads[1].substr(9), scalar_event(0, 7, scalars).substr(9));
}

}  // namespace
}  // namespace dormouse::report
