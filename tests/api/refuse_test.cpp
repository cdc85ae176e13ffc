#include <regex.h>

#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "support.h"

namespace dormouse::tests {
namespace {

class Refuse : public FolderTest {};

int open_status(const std::filesystem::path& path) {
  auto* const untouched = reinterpret_cast<dormouse_model*>(1);
  dormouse_model* model = untouched;
  const int status = dormouse_open(path.c_str(), &model);
  if (status == DORMOUSE_OK) {
    EXPECT_STREQ(dormouse_last_error(), "");
    dormouse_close(model);
  } else {
    EXPECT_EQ(model, nullptr);
    expect_sentence(path.string());
  }
  return status;
}

// pattern: an extended regular expression, as grep -E reads it.
bool matches(const std::string& text, const std::string& pattern) {
  regex_t compiled;
  if (regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB) != 0) return false;
  const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

TEST_F(Refuse, EveryBadFileGetsTheSentenceOfTheProgram) {
  const auto files = kTests / "bad" / "files";
  std::ifstream messages(kTests / "bad" / "messages.txt");
  int count = 0;
  for (std::string line; std::getline(messages, line); ++count) {
    const auto tab = line.find('\t');
    const std::string name = line.substr(0, tab);
    const int status = open_status(files / name);
    EXPECT_TRUE(status == DORMOUSE_REFUSED || status == DORMOUSE_DAMAGED) << name << ": " << status;
    const std::string text = dormouse_last_error();
    EXPECT_TRUE(matches(text, line.substr(tab + 1))) << name << ": " << text;
  }
  EXPECT_GE(count, 60);
  for (const auto& entry : std::filesystem::directory_iterator(files)) {
    if (entry.path().filename().string().starts_with("good-")) {
      EXPECT_EQ(open_status(entry.path()), DORMOUSE_OK);
    }
  }
}

TEST_F(Refuse, WhatIsNoFileOfAModelIsNamed) {
  const auto expect = [&](const std::filesystem::path& path, dormouse_status status, const std::string& part) {
    EXPECT_EQ(open_status(path), status) << path;
    EXPECT_NE(std::string(dormouse_last_error()).find(part), std::string::npos) << dormouse_last_error();
  };
  write_text(folder_ / "empty", "");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  expect(folder_ / "empty", DORMOUSE_DAMAGED, "empty");
  expect(folder_ / "pipe", DORMOUSE_REFUSED, "pipe");
  expect(folder_ / "nowhere", DORMOUSE_REFUSED, "nowhere");
  expect(folder_, DORMOUSE_REFUSED, "directory without model.dmexp");
  expect("/dev/null", DORMOUSE_REFUSED, "/dev/null");
  expect(kTests / "formats" / "0.1" / "run", DORMOUSE_REFUSED, "dormouse export");
  expect(kTests / "formats" / "0.1" / "run" / "checkpoint.safetensors", DORMOUSE_REFUSED, "dormouse export");
  EXPECT_EQ(open_status(""), DORMOUSE_REFUSED);
  EXPECT_EQ(open_status(std::string(100000, 'x')), DORMOUSE_REFUSED);
  EXPECT_EQ(open_status("a\nb\x1b[2J"), DORMOUSE_REFUSED);
}

TEST_F(Refuse, AnExportCutAtAnyLengthIsDamaged) {
  for (const auto& path : {kTests / "bad" / "files" / "good-bf16.dmexp", kExports / "int8.dmexp"}) {
    const auto copy = folder_ / "cut.dmexp";
    std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
    ASSERT_EQ(open_status(copy), DORMOUSE_OK);
    for (auto size = std::filesystem::file_size(copy); size-- > 0;) {
      std::filesystem::resize_file(copy, size);
      const bool text = size > 0 && size < 7;  // a part of the magic is a text like others
      ASSERT_EQ(open_status(copy), text ? DORMOUSE_REFUSED : DORMOUSE_DAMAGED)
          << path << " cut to " << size << ": " << dormouse_last_error();
    }
  }
}

TEST_F(Refuse, AFlippedByteIsFound) {
  const auto copy = folder_ / "flipped.dmexp";
  std::string text = file_text(kExports / "ternary.dmexp");
  ASSERT_GT(text.size(), 10000U);
  for (std::size_t i = 0; i < text.size(); i += i < 64 ? 1 : 37) {
    const char mask = static_cast<char>(1 << (i % 8));
    text[i] = static_cast<char>(text[i] ^ mask);
    write_text(copy, text);
    ASSERT_NE(open_status(copy), DORMOUSE_OK) << "byte " << i;
    text[i] = static_cast<char>(text[i] ^ mask);
  }
}

TEST_F(Refuse, NullIsAWrongArgument) {
  const auto model = open(kExports / "f32.dmexp");
  const auto session = session_of(model);
  unsigned char byte = 'x';
  float logits[256];
  auto options = options_with();
  const auto usage = [](int status) {
    EXPECT_EQ(status, DORMOUSE_USAGE);
    expect_sentence("a call with NULL");
  };
  dormouse_model* no_model = nullptr;
  dormouse_session* no_session = nullptr;
  usage(dormouse_open(nullptr, &no_model));
  usage(dormouse_open("x", nullptr));
  usage(dormouse_session_new(nullptr, 0, &no_session));
  usage(dormouse_session_new(model.get(), 0, nullptr));
  usage(dormouse_session_restart(nullptr));
  usage(dormouse_read(nullptr, &byte, 1));
  usage(dormouse_read(session.get(), nullptr, 1));
  usage(dormouse_logits(nullptr, logits));
  usage(dormouse_logits(session.get(), nullptr));
  usage(dormouse_options_init(nullptr, sizeof options));
  usage(dormouse_sample(nullptr, &options, &byte));
  usage(dormouse_sample(session.get(), nullptr, &byte));
  usage(dormouse_sample(session.get(), &options, nullptr));
  Take take = [](const std::string&) { return 0; };
  usage(dormouse_generate(nullptr, &options, &byte, 1, 1, sink, &take, nullptr));
  usage(dormouse_generate(session.get(), &options, nullptr, 1, 1, sink, &take, nullptr));
  usage(dormouse_generate(session.get(), &options, &byte, 1, 1, nullptr, nullptr, nullptr));
  options.stop_count = 1;
  usage(dormouse_generate(session.get(), &options, &byte, 1, 1, sink, &take, nullptr));
  const char* stops[] = {nullptr};
  options.stops = stops;
  usage(dormouse_generate(session.get(), &options, &byte, 1, 1, sink, &take, nullptr));
  dormouse_source source = [](void*, unsigned char*, size_t, size_t*) { return 0; };
  usage(dormouse_compress(nullptr, 0, source, nullptr, sink, &take, nullptr));
  usage(dormouse_compress(model.get(), 0, nullptr, nullptr, sink, &take, nullptr));
  usage(dormouse_compress(model.get(), 0, source, nullptr, nullptr, nullptr, nullptr));
  usage(dormouse_decompress(nullptr, source, nullptr, sink, &take, nullptr));
  usage(dormouse_decompress(model.get(), nullptr, nullptr, sink, &take, nullptr));
  usage(dormouse_decompress(model.get(), source, nullptr, nullptr, nullptr, nullptr));
  dormouse_close(nullptr);
  dormouse_session_free(nullptr);
  EXPECT_EQ(dormouse_depth(nullptr), 0);
  EXPECT_EQ(dormouse_parameters(nullptr), 0U);
  EXPECT_EQ(dormouse_parameter_bytes(nullptr), 0U);
  EXPECT_STREQ(dormouse_dtype(nullptr), "");
}

TEST_F(Refuse, AbsurdNumbersAreWrongArguments) {
  const auto model = open(kExports / "f32.dmexp");
  const auto session = session_of(model);
  const unsigned char byte = 'x';
  Take take = [](const std::string&) { return 0; };
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t depth : {std::int64_t{-1}, dormouse_depth(model.get()) + 1, kMost, -kMost - 1}) {
    dormouse_session* none = session.get();
    EXPECT_EQ(dormouse_session_new(model.get(), depth, &none), DORMOUSE_USAGE) << depth;
    EXPECT_EQ(none, nullptr);
  }
  for (const std::size_t count : {(std::size_t{1} << 30) + 1, SIZE_MAX / 2, SIZE_MAX})
    EXPECT_EQ(dormouse_read(session.get(), &byte, count), DORMOUSE_USAGE) << count;
  EXPECT_EQ(dormouse_set_threads(-1), DORMOUSE_USAGE);
  EXPECT_EQ(dormouse_set_threads(1 << 30), DORMOUSE_USAGE);

  const auto generate = [&](const std::function<void(dormouse_options&)>& change, std::int64_t bytes = 1) {
    auto options = options_with();
    change(options);
    return dormouse_generate(session.get(), &options, &byte, 1, bytes, sink, &take, nullptr);
  };
  const double nan = std::nan("");
  EXPECT_EQ(generate([](auto&) {}), DORMOUSE_OK);
  EXPECT_EQ(generate([](auto&) {}, -2), DORMOUSE_USAGE);
  EXPECT_EQ(generate([](auto& o) { o.temperature = -1; }), DORMOUSE_USAGE);
  EXPECT_EQ(generate([&](auto& o) { o.temperature = nan; }), DORMOUSE_USAGE);
  EXPECT_EQ(generate([](auto& o) { o.top_k = -1; }), DORMOUSE_USAGE);
  EXPECT_EQ(generate([](auto& o) { o.top_p = 0; }), DORMOUSE_USAGE);
  EXPECT_EQ(generate([&](auto& o) { o.min_p = nan; }), DORMOUSE_USAGE);
  EXPECT_EQ(generate([](auto& o) { o.repeat_penalty = 1e9; }), DORMOUSE_USAGE);
  EXPECT_EQ(generate([](auto& o) { o.stop_count = SIZE_MAX; }), DORMOUSE_USAGE);
  for (const std::size_t size : {std::size_t{0}, sizeof(dormouse_options) - 8, SIZE_MAX})
    EXPECT_EQ(generate([&](auto& o) { o.size = size; }), DORMOUSE_USAGE) << size;
  dormouse_options options;
  EXPECT_EQ(dormouse_options_init(&options, 0), DORMOUSE_USAGE);
  EXPECT_EQ(dormouse_options_init(&options, SIZE_MAX), DORMOUSE_USAGE);
  dormouse_generated stats = {};
  EXPECT_EQ(dormouse_generate(session.get(), nullptr, &byte, 1, 1, sink, &take, &stats), DORMOUSE_USAGE);
}

TEST_F(Refuse, OptionsOfANewerHeaderAreTakenWhileTheyAskForNothingNew) {
  struct Newer {
    dormouse_options known;
    double more;
  } newer;
  ASSERT_EQ(dormouse_options_init(&newer.known, sizeof newer), DORMOUSE_OK);
  EXPECT_EQ(newer.more, 0);
  const auto model = open(kExports / "f32.dmexp");
  const auto session = session_of(model);
  std::string out;
  Take take = into(out);
  EXPECT_EQ(dormouse_generate(session.get(), &newer.known, nullptr, 0, 5, sink, &take, nullptr), DORMOUSE_OK) << dormouse_last_error();
  EXPECT_EQ(out.size(), 5U);
  newer.more = 1;
  EXPECT_EQ(dormouse_generate(session.get(), &newer.known, nullptr, 0, 5, sink, &take, nullptr), DORMOUSE_USAGE);
}

}  // namespace
}  // namespace dormouse::tests
