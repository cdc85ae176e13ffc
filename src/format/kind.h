// What a file is, by its first bytes: for the message that refuses it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dormouse::format {

// A sentence end such as "is gzip data; unpack it first (gunzip)", or "" when nothing is recognised. `head`: the first bytes
// (64 are enough).
std::string_view recognised(std::span<const std::uint8_t> head);

}  // namespace dormouse::format
