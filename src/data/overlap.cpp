#include "data/overlap.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <vector>

#include "base/file.h"

namespace dormouse::data {
namespace {

constexpr std::uint64_t kBase = 0x9e3779b97f4a7c15;  // odd

constexpr std::uint64_t kLeaving = [] {  // the weight of a byte that leaves
  std::uint64_t power = 1;
  for (std::size_t i = 0; i < kOverlapBlock; ++i) power *= kBase;
  return power;
}();

std::uint64_t hash_of(std::span<const std::uint8_t> block) {
  std::uint64_t hash = 0;
  for (const std::uint8_t byte : block) hash = hash * kBase + byte;
  return hash;
}

// The hashes that are looked for, behind a filter: most places of a text pass by with one bit read.
class Wanted {
 public:
  explicit Wanted(std::span<const std::uint8_t> text) {
    const std::size_t blocks = text.size() / kOverlapBlock;
    shift_ = 64 - static_cast<int>(std::bit_width(std::max<std::size_t>(blocks * 64, 1 << 16) - 1));
    filter_.resize((std::size_t{1} << (64 - shift_)) / 64);
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::uint64_t hash = hash_of(text.subspan(i * kOverlapBlock, kOverlapBlock));
      filter_[place(hash) / 64] |= bit(hash);
      ++times_[hash];
    }
  }
  // Blocks of this hash, the first time it is asked for.
  std::uint64_t take(std::uint64_t hash) {
    if ((filter_[place(hash) / 64] & bit(hash)) == 0) return 0;
    const auto found = times_.find(hash);
    if (found == times_.end()) return 0;
    const std::uint64_t times = found->second;
    times_.erase(found);
    return times;
  }

 private:
  std::size_t place(std::uint64_t hash) const { return static_cast<std::size_t>(hash * kBase >> shift_); }
  std::uint64_t bit(std::uint64_t hash) const { return std::uint64_t{1} << place(hash) % 64; }
  int shift_ = 0;
  std::vector<std::uint64_t> filter_;
  std::unordered_map<std::uint64_t, std::uint64_t> times_;
};

}  // namespace

Overlap find_overlap(const Corpus& train, std::span<const std::uint8_t> held_out, std::uint64_t most) {
  Overlap result{.blocks = held_out.size() / kOverlapBlock, .found = 0, .searched = 0};
  if (result.blocks == 0) return result;
  Wanted wanted(held_out);
  constexpr std::uint64_t kPiece = 1 << 20;
  std::vector<std::uint8_t> text(kOverlapBlock + kPiece);  // the last bytes before a piece, and the piece
  for (const CorpusFile& file : train.files) {
    const std::uint64_t size = std::min(file.bytes(), most - result.searched);
    result.searched += size;
    if (size < kOverlapBlock) continue;
    const base::File from = base::File::open_read(file.path);
    from.read_exactly_at(0, std::span(text).first(kOverlapBlock));
    std::uint64_t hash = hash_of(std::span(text).first(kOverlapBlock));
    result.found += wanted.take(hash);
    for (std::uint64_t at = kOverlapBlock; at < size; at += kPiece) {
      const auto piece = static_cast<std::size_t>(std::min(kPiece, size - at));
      from.read_exactly_at(at, std::span(text).subspan(kOverlapBlock, piece));
      for (std::size_t i = 0; i < piece; ++i) {
        hash = hash * kBase + (text[kOverlapBlock + i] - kLeaving * text[i]);
        result.found += wanted.take(hash);
      }
      std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(piece), kOverlapBlock, text.begin());
    }
  }
  return result;
}

}  // namespace dormouse::data
