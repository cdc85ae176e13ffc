// Well-formed UTF-8, one character at a time.
#pragma once

#include <cstddef>
#include <string_view>

namespace dormouse::base {

// Bytes (1 to 4) of the well-formed character (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF) at text[at],
// or 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t at);

}  // namespace dormouse::base
