#include "decode/printer.h"

#include <algorithm>
#include <cstdio>

namespace dormouse::decode {
namespace {

// Length of the character a lead byte starts; 0 for bytes that start none.
std::size_t length_of(std::uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// The second byte excludes overlong forms, surrogates and code points above U+10FFFF (RFC 3629).
bool continues(const std::string& held, std::uint8_t byte) {
  if (byte < 0x80 || byte > 0xBF) return false;
  if (held.size() != 1) return true;
  switch (static_cast<std::uint8_t>(held[0])) {
    case 0xE0:
      return byte >= 0xA0;
    case 0xED:
      return byte <= 0x9F;
    case 0xF0:
      return byte >= 0x90;
    case 0xF4:
      return byte <= 0x8F;
    default:
      return true;
  }
}

std::string hex(std::uint8_t byte) {
  char text[5];
  std::snprintf(text, sizeof text, "\\x%02x", byte);
  return text;
}

}  // namespace

void Printer::escape_held() {
  std::string text;
  for (const char c : held_) text += hex(static_cast<std::uint8_t>(c));
  held_.clear();
  if (!text.empty()) write_(text);
}

void Printer::put(std::uint8_t byte) {
  const char c = static_cast<char>(byte);
  if (raw_) {
    write_(std::string_view(&c, 1));
    return;
  }
  if (!held_.empty()) {
    if (continues(held_, byte)) {
      held_ += c;
      if (held_.size() < wanted_) return;
      if (wanted_ == 2 && static_cast<std::uint8_t>(held_[0]) == 0xC2 && byte < 0xA0) {  // C1 controls
        escape_held();
        return;
      }
      write_(held_);
      held_.clear();
      return;
    }
    escape_held();
  }
  wanted_ = length_of(byte);
  if (wanted_ > 1) {
    held_ = c;
  } else if (wanted_ == 0 || byte == 0x7F || (byte < 0x20 && byte != '\n' && byte != '\t')) {
    write_(hex(byte));
  } else {
    write_(std::string_view(&c, 1));
  }
}

void Printer::finish() { escape_held(); }

bool StopWatch::put(std::uint8_t byte, std::string& out) {
  held_ += static_cast<char>(byte);
  std::size_t keep = 0, complete = 0;  // of several that end here the longest counts
  for (const auto& stop : stops_) {
    if (stop.empty()) continue;
    if (held_.ends_with(stop)) complete = std::max(complete, stop.size());
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.ends_with(stop.substr(0, n))) keep = n;
    }
  }
  if (complete > 0) {
    out += held_.substr(0, held_.size() - complete);
    held_.clear();
    return true;
  }
  out += held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

}  // namespace dormouse::decode
