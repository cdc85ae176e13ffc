// Shared by the format tests: a folder of their own, bytes to files and back, the message of a refusal.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "folder.h"

namespace dormouse::format::testing {

class FolderTest : public tests::FolderTest {
 protected:
  std::filesystem::path put(const std::string& bytes, const std::string& name = "x") const {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  static std::string get(const std::filesystem::path& path) {
    const auto bytes = base::read_file(path);
    return {bytes.begin(), bytes.end()};
  }
  // The one line with which `action` refuses; "" when it does not.
  template <class Action>
  static std::string refusal(const Action& action) {
    try {
      action();
    } catch (const base::Error& error) {
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
      EXPECT_NE(std::string_view(error.what()), "");
      return error.what();
    }
    return "";
  }
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <class T>
void poke(std::string& bytes, std::size_t at, T value) {
  ASSERT_LE(at + sizeof value, bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <class T>
T peek(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace dormouse::format::testing
