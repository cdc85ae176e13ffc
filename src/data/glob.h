// Globs of --include and --exclude.
#pragma once

#include <string_view>

namespace dormouse::data {

// * any bytes but /, ** any bytes, "**/" also nothing, ? one byte but /; all else itself. Bytewise; the whole path must match.
// A glob without a slash is matched against the part of `path` after its last slash.
bool glob_matches(std::string_view glob, std::string_view path);

}  // namespace dormouse::data
