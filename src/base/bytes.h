// Numbers and texts as bytes of a file: little endian on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace dormouse::base {

// sizeof value bytes from `to` on.
template <class T>
requires std::is_unsigned_v<T>
constexpr void store_little(std::uint8_t* to, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

template <class T>
requires std::is_unsigned_v<T>
constexpr T load_little(const std::uint8_t* from) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) value = static_cast<T>(value | static_cast<T>(static_cast<T>(from[i]) << (8 * i)));
  return value;
}

inline std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace dormouse::base
