#include "base/error.h"

#include <cstdint>

#include "base/utf8.h"

namespace dormouse::base {
namespace {

// Valid characters that would still steer a terminal or break a line: C1 controls, line and paragraph separators, the
// direction overrides, the byte order mark.
bool is_hidden(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(character[i]); };
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  if (character.size() != 3) return false;
  if (byte(0) == 0xEF) return byte(1) == 0xBB && byte(2) == 0xBF;
  if (byte(0) != 0xE2) return false;
  if (byte(1) == 0x80) return byte(2) == 0x8E || byte(2) == 0x8F || (byte(2) >= 0xA8 && byte(2) <= 0xAE);
  return byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9;
}

void append_hex(std::string& out, char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto byte = static_cast<std::uint8_t>(c);
  out += "\\x";
  out += kDigits[byte >> 4];
  out += kDigits[byte & 15U];
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    default:
      break;
  }
  if (static_cast<std::uint8_t>(c) < 0x20 || c == 0x7F) {
    append_hex(out, c);
  } else {
    out += c;
  }
}

}  // namespace

std::string escape(std::string_view text, std::size_t limit) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t known = utf8_length(text, at);
    const std::size_t length = known == 0 ? 1 : known;
    if (at + length > limit) {
      out += "...";
      break;
    }
    const std::string_view character = text.substr(at, length);
    if (known == 1) {
      append_escaped(out, character[0]);
    } else if (known == 0 || is_hidden(character)) {
      for (const char c : character) append_hex(out, c);
    } else {
      out += character;
    }
    at += length;
  }
  return out;
}

}  // namespace dormouse::base
