#include <dormouse.h>

#include <cstring>

#include "support.h"

namespace dormouse::tests {
namespace {

const std::string kText =
    "the dormouse sleeps in the teapot until May, and what it dreams of nobody knows; " + std::string(200, '.') + " so.";

TEST(Session, AModelSaysWhatItIs) {
  const auto model = open(kExports / "int8.dmexp");
  EXPECT_EQ(dormouse_depth(model.get()), 2);
  EXPECT_STREQ(dormouse_dtype(model.get()), "int8");
  EXPECT_GT(dormouse_parameters(model.get()), 1000U);
  EXPECT_GT(dormouse_parameter_bytes(model.get()), dormouse_parameters(model.get()));
  EXPECT_LT(dormouse_parameter_bytes(model.get()), 4 * dormouse_parameters(model.get()));
  EXPECT_STREQ(dormouse_version(), "0.1.0");
}

TEST(Session, HowATextIsCutChangesNoBit) {
  const auto model = open(kExports / "bf16.dmexp");
  const auto whole = session_of(model), cut = session_of(model);
  ASSERT_EQ(dormouse_read(whole.get(), bytes_of(kText), kText.size()), DORMOUSE_OK);
  for (std::size_t at = 0, piece = 1; at < kText.size(); at += piece, piece = piece % 7 + 1) {
    piece = std::min(piece, kText.size() - at);
    ASSERT_EQ(dormouse_read(cut.get(), bytes_of(kText) + at, piece), DORMOUSE_OK);
  }
  EXPECT_EQ(logits_of(whole), logits_of(cut));
  ASSERT_EQ(dormouse_read(cut.get(), nullptr, 0), DORMOUSE_OK);
  EXPECT_EQ(logits_of(whole), logits_of(cut));
  ASSERT_EQ(dormouse_read(cut.get(), bytes_of("x"), 1), DORMOUSE_OK);
  EXPECT_NE(logits_of(whole), logits_of(cut));
}

TEST(Session, BeforeTheFirstByteNothingCanBeSaid) {
  const auto session = session_of(open(kExports / "f16.dmexp"));  // the model is closed here
  float logits[256];
  unsigned char byte = 0;
  auto options = options_with();
  EXPECT_EQ(dormouse_logits(session.get(), logits), DORMOUSE_USAGE);
  EXPECT_EQ(dormouse_sample(session.get(), &options, &byte), DORMOUSE_USAGE);
  ASSERT_EQ(dormouse_read(session.get(), bytes_of("x"), 1), DORMOUSE_OK);
  const auto first = logits_of(session);
  ASSERT_EQ(dormouse_read(session.get(), bytes_of("yz"), 2), DORMOUSE_OK);
  ASSERT_EQ(dormouse_session_restart(session.get()), DORMOUSE_OK);
  EXPECT_EQ(dormouse_logits(session.get(), logits), DORMOUSE_USAGE);
  ASSERT_EQ(dormouse_read(session.get(), bytes_of("x"), 1), DORMOUSE_OK);
  EXPECT_EQ(logits_of(session), first);
}

TEST(Session, TwoSessionsInTurnsSayWhatEachSaysAlone) {
  const auto model = open(kExports / "int8.dmexp");
  const std::string one = "Once upon", other = "a quite different text";
  const auto alone = [&](const std::string& text, std::int64_t depth) {
    const auto session = session_of(model, depth);
    EXPECT_EQ(dormouse_read(session.get(), bytes_of(text), text.size()), DORMOUSE_OK);
    return logits_of(session);
  };
  const auto a = session_of(model), b = session_of(model, 1);
  for (std::size_t i = 0; i < other.size(); ++i) {
    if (i < one.size()) {
      ASSERT_EQ(dormouse_read(a.get(), bytes_of(one) + i, 1), DORMOUSE_OK);
    }
    ASSERT_EQ(dormouse_read(b.get(), bytes_of(other) + i, 1), DORMOUSE_OK);
  }
  EXPECT_EQ(logits_of(a), alone(one, 0));
  EXPECT_EQ(logits_of(b), alone(other, 1));
  EXPECT_NE(logits_of(b), alone(other, 2));
}

TEST(Generate, WritesTheBytesOfTheProgram) {
  const auto path = kExports / "bf16.dmexp";
  const auto model = open(path);
  const std::string command = "generate " + path.string() + " -p 'the dormouse' -n 200 -s 7 ";
  const auto compare = [&](const std::string& flags, dormouse_options options, std::int64_t depth = 0) {
    EXPECT_EQ(generated(session_of(model, depth), "the dormouse", 200, options), program(command + flags + " 2>&-")) << flags;
  };
  auto options = options_with(0.8);
  compare("--raw", options);
  compare("--raw --depth 1", options, 1);
  options.text = 1;
  compare("", options);
  options = options_with(1.5, 7);
  options.top_k = 40;
  options.top_p = 0.9;
  options.min_p = 0.01;
  options.repeat_penalty = 1.3;
  compare("--raw --temp 1.5 --top-k 40 --top-p 0.9 --min-p 0.01 --repeat-penalty 1.3", options);
  compare("--raw --temp 0", options_with(0));
  const char* stops[] = {"zz", "e", "qq"};
  options = options_with(0.8);
  options.stops = stops;
  options.stop_count = 3;
  compare("--raw --stop zz --stop e --stop qq", options);
  EXPECT_EQ(generated(session_of(model), "", 50, options_with()), program("generate " + path.string() + " -n 50 -s 7 --temp 1 --raw 2>&-"));
}

TEST(Generate, SamplingAndReadingInTurnsIsTheSame) {
  const auto model = open(kExports / "int8.dmexp");
  auto options = options_with();
  options.repeat_penalty = 1.2;
  const std::string wanted = generated(session_of(model), kText, 150, options);
  const auto session = session_of(model);
  ASSERT_EQ(dormouse_read(session.get(), bytes_of(kText), kText.size()), DORMOUSE_OK);
  std::string out;
  for (int i = 0; i < 150; ++i) {
    unsigned char byte = 0;
    ASSERT_EQ(dormouse_sample(session.get(), &options, &byte), DORMOUSE_OK) << dormouse_last_error();
    ASSERT_EQ(dormouse_read(session.get(), &byte, 1), DORMOUSE_OK);
    out += static_cast<char>(byte);
  }
  EXPECT_EQ(out, wanted);
}

TEST(Generate, ContinuesWhereTheSessionStands) {
  const auto model = open(kExports / "f32.dmexp");
  const auto options = options_with(0);
  const std::string whole = generated(session_of(model), "abc", 40, options);
  const auto session = session_of(model);
  ASSERT_EQ(dormouse_read(session.get(), bytes_of("a"), 1), DORMOUSE_OK);
  std::string out = generated(session, "bc", 15, options);
  out += generated(session, "", 25, options);
  EXPECT_EQ(out, whole);
}

TEST(Generate, TheCallbackStopsIt) {
  const auto model = open(kExports / "f32.dmexp");
  const auto session = session_of(model);
  const auto options = options_with(0);
  std::string out;
  Take take = [&](const std::string& bytes) {
    out += bytes;
    return out.size() < 5 ? 0 : -3;
  };
  dormouse_generated stats = {};
  stats.size = sizeof stats;
  EXPECT_EQ(dormouse_generate(session.get(), &options, bytes_of("abc"), 3, -1, sink, &take, &stats), DORMOUSE_STOPPED);
  expect_sentence("stopped");
  EXPECT_EQ(out.size(), 5U);
  EXPECT_EQ(stats.written_bytes, 5U);
  EXPECT_EQ(stats.prompt_bytes, 3U);
  EXPECT_EQ(stats.at_stop, 0);
  EXPECT_EQ(out + generated(session, "", 5, options), generated(session_of(model), "abc", 10, options));
}

TEST(Generate, AStopStringIsNotWrittenAndIsSaid) {
  const auto model = open(kExports / "bf16.dmexp");
  const std::string whole = generated(session_of(model), "abc", 60, options_with());
  ASSERT_EQ(whole.size(), 60U);
  std::string stop = whole.substr(30, 3);
  if (stop.find('\0') != std::string::npos) GTEST_SKIP() << "a stop string of C holds no zero byte";
  const char* stops[] = {stop.c_str()};
  auto options = options_with();
  options.stops = stops;
  options.stop_count = 1;
  std::string out;
  Take take = into(out);
  dormouse_generated stats = {};
  stats.size = sizeof stats;
  ASSERT_EQ(dormouse_generate(session_of(model).get(), &options, bytes_of("abc"), 3, 60, sink, &take, &stats), DORMOUSE_OK);
  EXPECT_EQ(out, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(stats.at_stop, 1);
  EXPECT_EQ(stats.written_bytes, out.size() + stop.size());
}

TEST(Generate, StatsOfAShorterStructAreNotWrittenBeyondIt) {
  const auto session = session_of(open(kExports / "f32.dmexp"));
  struct Longer {
    dormouse_generated known;
    std::uint64_t beyond;
  } stats;
  std::memset(&stats, 0x5a, sizeof stats);
  stats.known.size = sizeof stats;
  Take take = [](const std::string&) { return 0; };
  ASSERT_EQ(dormouse_generate(session.get(), nullptr, nullptr, 0, 3, sink, &take, &stats.known), DORMOUSE_OK);
  EXPECT_EQ(stats.known.written_bytes, 3U);
  EXPECT_EQ(stats.known.size, sizeof stats);
  EXPECT_EQ(stats.beyond, 0x5a5a5a5a5a5a5a5aU);
}

}  // namespace
}  // namespace dormouse::tests
