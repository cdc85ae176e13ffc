#include "base/version.h"

// Written by cmake/version.cmake at every build, touched only when a value changes.
#include "dormouse_version.inc"

namespace dormouse::base {

std::string_view version() { return kVersion; }
std::string_view commit() { return kCommit; }
std::string_view compiler() { return kCompiler; }

}  // namespace dormouse::base
