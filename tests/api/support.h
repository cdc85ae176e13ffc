// What the tests of the C interface share. They know the library through dormouse.h alone.
#pragma once

#include <dormouse.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "../folder.h"

namespace dormouse::tests {

inline const std::filesystem::path kTests = DORMOUSE_TEST_DIR;
inline const std::filesystem::path kExports = kTests / "formats" / "exports";

using ModelHandle = std::unique_ptr<dormouse_model, decltype(&dormouse_close)>;
using SessionHandle = std::unique_ptr<dormouse_session, decltype(&dormouse_session_free)>;

inline ModelHandle open(const std::filesystem::path& path) {
  dormouse_model* model = nullptr;
  EXPECT_EQ(dormouse_open(path.c_str(), &model), DORMOUSE_OK) << dormouse_last_error();
  return {model, dormouse_close};
}

inline SessionHandle session_of(const ModelHandle& model, std::int64_t depth = 0) {
  dormouse_session* session = nullptr;
  EXPECT_EQ(dormouse_session_new(model.get(), depth, &session), DORMOUSE_OK) << dormouse_last_error();
  return {session, dormouse_session_free};
}

inline const unsigned char* bytes_of(const std::string& text) { return reinterpret_cast<const unsigned char*>(text.data()); }

inline dormouse_options options_with(double temperature = 1, std::uint64_t seed = 7) {
  dormouse_options options;
  EXPECT_EQ(dormouse_options_init(&options, sizeof options), DORMOUSE_OK);
  options.temperature = temperature;
  options.seed = seed;
  return options;
}

// A sink with what it needs: take(bytes) returns what the callback returns.
using Take = std::function<int(const std::string&)>;
inline int sink(void* user, const unsigned char* bytes, size_t count) {
  return (*static_cast<Take*>(user))(std::string(reinterpret_cast<const char*>(bytes), count));
}

inline Take into(std::string& out) {
  return [&out](const std::string& bytes) {
    out += bytes;
    return 0;
  };
}

inline std::string generated(const SessionHandle& session, const std::string& prompt, std::int64_t bytes, const dormouse_options& options) {
  std::string out;
  Take take = into(out);
  EXPECT_EQ(dormouse_generate(session.get(), &options, bytes_of(prompt), prompt.size(), bytes, sink, &take, nullptr), DORMOUSE_OK)
      << dormouse_last_error();
  return out;
}

inline std::vector<float> logits_of(const SessionHandle& session) {
  std::vector<float> out(256);
  EXPECT_EQ(dormouse_logits(session.get(), out.data()), DORMOUSE_OK) << dormouse_last_error();
  return out;
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// What the program prints.
inline std::string program(const std::string& arguments) {
  std::string out;
  std::FILE* pipe = popen((std::string(DORMOUSE_BUILD_DIR) + "/dormouse " + arguments).c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << arguments;
  return out;
}

// One line that is worth printing.
inline void expect_sentence(const std::string& what) {
  const std::string text = dormouse_last_error();
  EXPECT_GT(text.size(), 10U) << what;
  EXPECT_EQ(text.find('\n'), std::string::npos) << what;
}

}  // namespace dormouse::tests
