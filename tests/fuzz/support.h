// Shared by the fuzzers: the input as a file in memory, refusals as answers.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.h"

namespace dormouse::fuzz {

// A file without a place on disk; readers open it by the path of its descriptor.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::uint8_t> bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0 || ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) __builtin_trap();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// A refusal is one line.
template <class Action>
void answered(const Action& action) {
  try {
    action();
  } catch (const base::Error& error) {
    const std::string message = error.what();
    if (message.empty() || message.find('\n') != std::string::npos) __builtin_trap();
  }
}

}  // namespace dormouse::fuzz
