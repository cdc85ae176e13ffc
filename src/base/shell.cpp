#include "base/shell.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace dormouse::base {
namespace {

bool is_plain(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || std::string_view("._-/+:,@%=").find(c) != std::string_view::npos;
}

bool is_showable(std::string_view word) {
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = utf8_length(word, at);
    if (length == 0 || static_cast<unsigned char>(word[at]) < 0x20 || word[at] == 0x7F) return false;
    at += length;
  }
  return true;
}

std::string& program_name() {
  static std::string name = "dormouse";
  return name;
}

}  // namespace

std::string program() { return shell_word(program_name()); }

void set_program(std::string_view name) {
  if (!name.empty()) program_name() = name;
}

std::string shell_word(std::string_view word) {
  if (!word.empty() && word[0] != '-' && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  if (!is_showable(word)) return '"' + escape(word, 1024) + '"';
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace dormouse::base
