// Words of a command line that a person can paste.
#pragma once

#include <string>
#include <string_view>

namespace dormouse::base {

// `word` as a POSIX shell reads it back: as it is, or in single quotes; with control bytes or no UTF-8 inside, base::escape of it in
// double quotes, which no shell reads back but every terminal can show.
std::string shell_word(std::string_view word);

// How this program was called, a word for commands to type next: "build/dormouse". "dormouse" until it is set, as in the library.
std::string program();
void set_program(std::string_view name);  // argv[0], "" changes nothing; before threads start

}  // namespace dormouse::base
