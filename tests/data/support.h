// A directory that is gone at the end of the test, and random bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus.h"
#include "folder.h"

namespace dormouse::data {

class TemporaryDirectory {
 public:
  const std::filesystem::path& path() const { return folder_.path; }
  std::filesystem::path write(const std::filesystem::path& name, std::string_view text) const {
    const auto path = folder_.path / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

 private:
  tests::TemporaryFolder folder_;
};

inline std::string random_text(std::size_t size, std::uint64_t seed) {
  std::string out;
  std::uint64_t state = seed;
  while (out.size() < size) out.push_back(static_cast<char>((state = state * 6364136223846793005ULL + 1442695040888963407ULL) >> 56));
  return out;
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace dormouse::data
