// The order in which a ByteStream visits a corpus: pure functions, no reading.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "data/corpus.h"

namespace dormouse::data {

// Fisher-Yates from the back: for i = n-1 .. 1, swap(i, next mod (i + 1)).
template <class T>
void shuffle(std::span<T> items, base::SplitMix64 random) {
  for (std::size_t i = items.size(); i-- > 1;) std::swap(items[i], items[random.below(i + 1)]);
}

// Sizes that do not change over the epochs.
struct Geometry {
  std::uint64_t bytes = 0;    // N, of the corpus
  std::uint64_t seq_len = 0;  // T
  std::uint64_t seed = 0;
  bool ring = false;                 // false: one block, one generation per epoch
  std::uint64_t per_block = 0;       // windows in a block, all but the last of the corpus
  std::uint64_t per_generation = 0;  // blocks in a generation, all but the last of the epoch

  Geometry(std::uint64_t corpus_bytes, std::uint64_t seq_len, std::uint64_t seed, std::uint64_t ring_bytes);
  std::uint64_t offset(std::uint64_t epoch) const;
  std::uint64_t windows(std::uint64_t epoch) const;
};

// Epoch e laid out: where each file starts, and the blocks of windows in the order they are visited.
struct EpochOrder {
  std::uint64_t epoch = 0, offset = 0, windows = 0;
  std::vector<std::uint32_t> files;   // shuffled indices into corpus.files
  std::vector<std::uint64_t> starts;  // start of each of them in the concatenation, then N
  std::vector<std::uint32_t> blocks;  // shuffled

  EpochOrder(const Geometry& geometry, const Corpus& corpus, std::uint64_t epoch);
  std::uint64_t generations(const Geometry& geometry) const;
};

// One generation: its blocks, and its windows in the order they are delivered.
struct GenerationOrder {
  std::uint64_t epoch = 0, generation = 0;
  std::vector<std::uint64_t> first_window;  // of each block, in the epoch's numbering
  std::vector<std::uint32_t> starts;        // of each block in the generation's numbering, then the number of windows
  std::vector<std::uint32_t> windows;       // permuted

  GenerationOrder(const Geometry& geometry, const EpochOrder& epoch, std::uint64_t generation);
  std::uint64_t blocks() const { return first_window.size(); }
  std::uint64_t block_windows(std::uint64_t block) const { return starts[block + 1] - starts[block]; }
};

}  // namespace dormouse::data
