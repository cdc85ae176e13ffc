// Counts of all n-grams of a text up to 8 bytes, as a trie; shared by Kneser-Ney, Witten-Bell and the compat back-off.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace dormouse::evaluate {

inline constexpr int kMaxOrder = 8;

// Level n holds the distinct n-grams in bytewise order; the children of a node are its one-byte extensions, contiguous on level n+1.
// Level 0 is the root (the empty n-gram).
class NgramTrie {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Level {
    std::vector<std::uint8_t> symbol;         // last byte
    std::vector<std::uint32_t> raw;           // occurrences
    std::vector<std::uint16_t> continuation;  // distinct bytes before it, the start of the text counting as one; empty on the last level
    std::vector<std::uint32_t> first_child;   // nodes + 1 entries; empty on the last level
  };

  // max_order in 1..8, below 2^32 - 1 bytes; else base::Error.
  NgramTrie(std::span<const std::uint8_t> fit, int max_order);

  int max_order() const { return max_order_; }
  std::uint64_t fit_bytes() const { return fit_bytes_; }
  const Level& level(int n) const { return levels_[static_cast<std::size_t>(n)]; }

  // The children of a node of level n < max_order: [begin, end) on level n + 1.
  struct Range {
    std::uint32_t begin = 0, end = 0;
  };
  Range children(int n, std::uint32_t node) const {
    const Level& l = level(n);
    return {l.first_child[node], l.first_child[node + 1]};
  }
  // The child of a node of level n < max_order with that last byte, or kNone.
  std::uint32_t child(int n, std::uint32_t node, std::uint8_t symbol) const;

 private:
  int max_order_;
  std::uint64_t fit_bytes_;
  std::array<Level, kMaxOrder + 1> levels_;
};

// The nodes of the last 0, 1, ..., max_order-1 bytes of what was pushed: context(m) on level m, kNone when that context was never seen or
// fewer than m bytes were pushed.
class NgramContext {
 public:
  explicit NgramContext(const NgramTrie& trie);
  std::uint32_t context(int m) const { return nodes_[static_cast<std::size_t>(m)]; }
  void push(std::uint8_t symbol);

 private:
  const NgramTrie* trie_;
  std::array<std::uint32_t, kMaxOrder> nodes_;
};

// Bits per byte of `text` for orders 1..max_order (order k: contexts of up to k-1 bytes), no left context at the start.
// Modified Kneser-Ney: see anchors.h. Witten-Bell: P_k(w|h) = (c(hw) + T(h) P_{k-1}(w|h')) / (c(h) + T(h)), T(h) = distinct successors of
// h, P_0 = 1/256 (Witten & Bell 1991, method C, interpolated).
std::vector<double> kneser_ney_bits(const NgramTrie& trie, std::span<const std::uint8_t> text);
std::vector<double> witten_bell_bits(const NgramTrie& trie, std::span<const std::uint8_t> text);
double witten_bell_probability(const NgramTrie& trie, std::span<const std::uint8_t> context, std::uint8_t next, int order);

// The prior art's back-off: p = 0.75 c(hw)/c(h) + 0.25 p1(w) when hw was seen, else p1(w); p1(w) = (c(w) + 1) / (n + 256), h the last
// order-1 bytes. The first order-1 bytes are not scored but stand in the divisor. The probabilities of a seen context add up to more
// than 1.
double compat_bits(const NgramTrie& trie, std::span<const std::uint8_t> text, int order);
// p1 alone: add-one unigram.
double unigram_bits(const NgramTrie& trie, std::span<const std::uint8_t> text);

}  // namespace dormouse::evaluate
