// Bytes on their way to a person: whole UTF-8 characters, control bytes made visible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dormouse::decode {

// raw: bytes pass as they are. Otherwise a character is held until it is complete, and control bytes (except newline and tab), DEL, C1
// controls and invalid UTF-8 are written as \x1b.
class Printer {
 public:
  Printer(bool raw, std::function<void(std::string_view)> write) : raw_(raw), write_(std::move(write)) {}
  void put(std::uint8_t byte);
  void finish();  // writes what is still held

 private:
  void escape_held();
  bool raw_;
  std::function<void(std::string_view)> write_;
  std::string held_;
  std::size_t wanted_ = 0;  // length of the character being held
};

// Watches for stop strings; bytes that may begin one are held back.
class StopWatch {
 public:
  explicit StopWatch(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  // Adds a byte; released bytes are appended to `out`. True: a stop string is complete (it is not released).
  bool put(std::uint8_t byte, std::string& out);
  std::string rest() { return std::move(held_); }

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace dormouse::decode
