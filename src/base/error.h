// The one exception type of the project.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace dormouse::base {

// A failure with a one-line message: what was wrong, where, and the way out. Exit code 1.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

// A file that does not hold what was written into it: cut short, flipped bits, values no run writes. An older copy may be good.
class Damaged : public Error {
 public:
  explicit Damaged(const std::string& message) : Error(message) {}
};

// No memory was left for what was asked. Tensors throw it with their figures; elsewhere std::bad_alloc stands for the same.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& message) : Error(message) {}
};

// The command line itself was wrong (unknown flag, bad number). Exit code 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(message) {}
};

// Escapes control bytes, DEL, quotes and invalid UTF-8 as \x1b, \n, ... so that a name or a value from outside can
// stand in a one-line message. Long values are cut after `limit` bytes with "...".
std::string escape(std::string_view text, std::size_t limit = 200);

}  // namespace dormouse::base
