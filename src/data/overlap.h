// How much of a held-out text stands in the training text too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "data/corpus.h"

namespace dormouse::data {

inline constexpr std::size_t kOverlapBlock = 64;  // bytes

struct Overlap {
  std::uint64_t blocks = 0, found = 0;  // whole blocks of the held-out text; those that stand somewhere in the training text
  std::uint64_t searched = 0;           // bytes of training text

  double share() const { return blocks > 0 ? static_cast<double>(found) / static_cast<double>(blocks) : 0; }
};

// Looks for every block of kOverlapBlock bytes of `held_out`, cut from its start, at every place within a file of `train`, in its first
// `most` bytes (about 300 MB a second). By a rolling hash of 64 bits (Karp and Rabin 1987): blocks of equal hashes count as equal.
// Reads the files; base::Error as base::File.
Overlap find_overlap(const Corpus& train, std::span<const std::uint8_t> held_out, std::uint64_t most);

}  // namespace dormouse::data
