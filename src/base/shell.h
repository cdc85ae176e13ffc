// Words of a command line that a person can paste.
#pragma once

#include <string>
#include <string_view>

namespace dormouse::base {

// `word` as a POSIX shell reads it back: as it is, or in single quotes; with control bytes or no UTF-8 inside, base::escape of it in
// double quotes, which no shell reads back but every terminal can show.
std::string shell_word(std::string_view word);

}  // namespace dormouse::base
