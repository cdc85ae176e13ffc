#include "data/order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace dormouse::data {
namespace {

constexpr std::uint64_t kBlockBytes = 1 << 20;

enum class Purpose : std::uint64_t { kFiles = 1, kOffset = 2, kBlocks = 3, kWindows = 4 };

// A stream per (seed, purpose, epoch, generation).
base::SplitMix64 stream(std::uint64_t seed, Purpose purpose, std::uint64_t epoch, std::uint64_t generation = 0) {
  std::uint64_t key = base::SplitMix64(seed).next();
  for (const std::uint64_t value : {static_cast<std::uint64_t>(purpose), epoch, generation}) key = base::SplitMix64(key ^ value).next();
  return base::SplitMix64(key);
}

std::vector<std::uint32_t> permutation(std::uint64_t n, base::SplitMix64 random) {
  if (n > UINT32_MAX) throw base::Error("the corpus has more than 2^32 windows or blocks to shuffle at once; raise --seq-len");
  std::vector<std::uint32_t> out(n);
  std::iota(out.begin(), out.end(), 0U);
  shuffle(std::span(out), random);
  return out;
}

}  // namespace

Geometry::Geometry(std::uint64_t corpus_bytes, std::uint64_t length, std::uint64_t data_seed, std::uint64_t ring_bytes)
    : bytes(corpus_bytes), seq_len(length), seed(data_seed), ring(corpus_bytes > ring_bytes) {
  const std::uint64_t half = ring_bytes / 2, block = std::min(kBlockBytes, half);
  per_block = ring ? std::max<std::uint64_t>(1, block / seq_len) : (bytes - 1) / seq_len;
  per_generation = ring ? std::max<std::uint64_t>(1, half / (per_block * seq_len)) : 1;
}

std::uint64_t Geometry::offset(std::uint64_t epoch) const {
  return stream(seed, Purpose::kOffset, epoch).below(std::min(seq_len, bytes - seq_len));
}

std::uint64_t Geometry::windows(std::uint64_t epoch) const { return (bytes - 1 - offset(epoch)) / seq_len; }

EpochOrder::EpochOrder(const Geometry& geometry, const Corpus& corpus, std::uint64_t number)
    : epoch(number), offset(geometry.offset(number)), windows(geometry.windows(number)) {
  files = permutation(corpus.files.size(), stream(geometry.seed, Purpose::kFiles, epoch));
  starts.reserve(files.size() + 1);
  starts.push_back(0);
  for (const std::uint32_t file : files) starts.push_back(starts.back() + corpus.files[file].bytes());
  const std::uint64_t count = (windows + geometry.per_block - 1) / geometry.per_block;
  blocks = permutation(count, stream(geometry.seed, Purpose::kBlocks, epoch));
}

std::uint64_t EpochOrder::generations(const Geometry& geometry) const {
  return (blocks.size() + geometry.per_generation - 1) / geometry.per_generation;
}

GenerationOrder::GenerationOrder(const Geometry& geometry, const EpochOrder& order, std::uint64_t number)
    : epoch(order.epoch), generation(number) {
  const std::uint64_t begin = number * geometry.per_generation;
  const std::uint64_t end = std::min<std::uint64_t>(order.blocks.size(), begin + geometry.per_generation);
  std::uint64_t count = 0;
  starts.push_back(0);
  for (std::uint64_t i = begin; i < end; ++i) {
    first_window.push_back(order.blocks[i] * geometry.per_block);
    count += std::min(geometry.per_block, order.windows - first_window.back());
    starts.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(count, UINT32_MAX)));
  }
  windows = permutation(count, stream(geometry.seed, Purpose::kWindows, epoch, generation));
}

}  // namespace dormouse::data
