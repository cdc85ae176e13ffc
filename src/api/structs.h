// Structs of the C interface grow at their end: what a caller's shorter one does not have keeps its default, and what is beyond ours must
// be zero.
#pragma once

#include <algorithm>
#include <cstring>

#include "api/status.h"

namespace dormouse::api {

// `first`: the size of the struct in the first version that had it.
template <class T>
T taken(const T& given, T defaults, std::size_t first) {
  constexpr std::size_t kMost = 4096;
  const std::size_t size = given.size;
  if (size < first || size > kMost) throw Failure{DORMOUSE_USAGE, "the size in the options is none; set them with dormouse_options_init"};
  const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) throw Failure{DORMOUSE_USAGE, "the options ask for what only a newer libdormouse does"};
  }
  std::memcpy(&defaults, &given, std::min(size, sizeof(T)));
  defaults.size = sizeof(T);
  return defaults;
}

template <class T>
void require_size(const T* stats, std::size_t first) {
  if (stats != nullptr && stats->size < first) throw Failure{DORMOUSE_USAGE, "the size in the stats is none; set it to that of the struct"};
}

// As many bytes as the caller's struct has; its size stays.
template <class T>
void give(const T& from, T* to) {
  if (to == nullptr) return;
  const std::size_t size = to->size;
  std::memcpy(to, &from, std::min(size, sizeof(T)));
  to->size = size;
}

}  // namespace dormouse::api
