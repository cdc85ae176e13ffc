// What this binary is: for --version, the run log and the checkpoint's metadata.
#pragma once

#include <string_view>

namespace dormouse::base {

std::string_view version();   // "0.1.0"
std::string_view commit();    // twelve hex digits, "-dirty" when the tree had changes; "unknown" outside a git checkout
std::string_view compiler();  // "GNU 12.2.0, Release"

}  // namespace dormouse::base
