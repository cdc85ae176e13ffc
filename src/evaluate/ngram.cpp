#include "evaluate/ngram.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace dormouse::evaluate {
namespace {

// LSD radix sort on the low `bytes` bytes.
void radix_sort(std::vector<std::uint64_t>& keys, int bytes) {
  std::vector<std::uint64_t> other(keys.size());
  for (int b = 0; b < bytes; ++b) {
    const int shift = 8 * b;
    std::array<std::size_t, 257> start{};
    for (const std::uint64_t key : keys) ++start[((key >> shift) & 255) + 1];
    if (std::ranges::find(start, keys.size()) != start.end()) continue;  // all keys share this byte
    for (std::size_t i = 1; i < start.size(); ++i) start[i] += start[i - 1];
    for (const std::uint64_t key : keys) other[start[(key >> shift) & 255]++] = key;
    keys.swap(other);
  }
}

// Distinct n-grams as big-endian numbers, ascending, with their counts.
struct Distinct {
  std::vector<std::uint64_t> keys;
  std::vector<std::uint32_t> counts;
  void append(std::uint64_t key, std::uint32_t count) {
    if (!keys.empty() && keys.back() == key) {
      counts.back() += count;
    } else {
      keys.push_back(key);
      counts.push_back(count);
    }
  }
};

std::uint64_t big_endian(std::span<const std::uint8_t> bytes) {
  std::uint64_t key = 0;
  for (const std::uint8_t byte : bytes) key = (key << 8) | byte;
  return key;
}

Distinct longest_ngrams(std::span<const std::uint8_t> fit, int order) {
  Distinct out;
  const auto n = static_cast<std::size_t>(order);
  if (fit.size() < n) return out;
  const std::uint64_t mask = order == 8 ? UINT64_MAX : (1ULL << (8 * order)) - 1;
  std::vector<std::uint64_t> keys(fit.size() - n + 1);
  std::uint64_t key = big_endian(fit.first(n - 1));
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = key = ((key << 8) | fit[i + n - 1]) & mask;
  radix_sort(keys, order);
  for (const std::uint64_t k : keys) out.append(k, 1);
  return out;
}

// The n-grams of a text from its (n+1)-grams: all but the one that ends the text are a prefix of one of those.
Distinct shorter_ngrams(const Distinct& longer, std::span<const std::uint8_t> fit, int n) {
  Distinct out;
  for (std::size_t i = 0; i < longer.keys.size(); ++i) out.append(longer.keys[i] >> 8, longer.counts[i]);
  if (fit.size() < static_cast<std::size_t>(n)) return out;
  const std::uint64_t last = big_endian(fit.last(static_cast<std::size_t>(n)));
  const auto at = std::ranges::lower_bound(out.keys, last);
  const auto index = at - out.keys.begin();
  if (at != out.keys.end() && *at == last) {
    ++out.counts[static_cast<std::size_t>(index)];
  } else {
    out.keys.insert(at, last);
    out.counts.insert(out.counts.begin() + index, 1);
  }
  return out;
}

std::vector<std::uint16_t> continuation_counts(const Distinct& ngrams, const Distinct& longer, std::span<const std::uint8_t> fit, int n) {
  std::vector<std::uint64_t> tails;
  tails.reserve(longer.keys.size() + 1);
  const std::uint64_t mask = (1ULL << (8 * n)) - 1;
  for (const std::uint64_t key : longer.keys) tails.push_back(key & mask);
  if (fit.size() >= static_cast<std::size_t>(n)) tails.push_back(big_endian(fit.first(static_cast<std::size_t>(n))));
  radix_sort(tails, n);
  std::vector<std::uint16_t> counts(ngrams.keys.size());
  std::size_t i = 0;
  for (const std::uint64_t tail : tails) {
    while (ngrams.keys[i] != tail) ++i;
    ++counts[i];
  }
  return counts;
}

std::vector<std::uint32_t> child_starts(const Distinct& ngrams, const Distinct& longer) {
  std::vector<std::uint32_t> starts(ngrams.keys.size() + 1);
  std::size_t child = 0;
  for (std::size_t i = 0; i < ngrams.keys.size(); ++i) {
    starts[i] = static_cast<std::uint32_t>(child);
    while (child < longer.keys.size() && longer.keys[child] >> 8 == ngrams.keys[i]) ++child;
  }
  starts.back() = static_cast<std::uint32_t>(child);
  return starts;
}

double witten_bell_step(const NgramTrie& trie, int n, std::uint32_t context, std::uint8_t next, double lower) {
  if (context == NgramTrie::kNone) return lower;
  const auto [begin, end] = trie.children(n - 1, context);
  if (begin == end) return lower;
  const NgramTrie::Level& level = trie.level(n);
  double total = 0, seen = 0;
  for (std::uint32_t i = begin; i < end; ++i) {
    total += level.raw[i];
    if (level.symbol[i] == next) seen = level.raw[i];
  }
  const double types = end - begin;
  return (seen + types * lower) / (total + types);
}

double unigram_probability(const NgramTrie& trie, std::uint8_t next) {
  const std::uint32_t node = trie.child(0, 0, next);
  const double count = node == NgramTrie::kNone ? 0.0 : trie.level(1).raw[node];
  return (count + 1.0) / (static_cast<double>(trie.fit_bytes()) + 256.0);
}

}  // namespace

NgramTrie::NgramTrie(std::span<const std::uint8_t> fit, int max_order) : max_order_(max_order), fit_bytes_(fit.size()) {
  if (max_order < 1 || max_order > kMaxOrder) {
    throw base::Error("n-gram order " + std::to_string(max_order) + " is not in 1.." + std::to_string(kMaxOrder));
  }
  if (fit.size() >= UINT32_MAX) throw base::Error("n-gram anchors count at most 4 GiB; fit on less (--bytes)");
  Distinct longer;
  for (int n = max_order; n >= 0; --n) {
    Distinct ngrams;
    if (n == max_order) {
      ngrams = longest_ngrams(fit, n);
    } else if (n > 0) {
      ngrams = shorter_ngrams(longer, fit, n);
    } else {
      ngrams.append(0, static_cast<std::uint32_t>(fit.size()));
    }
    Level& level = levels_[static_cast<std::size_t>(n)];
    level.symbol.resize(ngrams.keys.size());
    std::ranges::transform(ngrams.keys, level.symbol.begin(), [](std::uint64_t key) { return static_cast<std::uint8_t>(key); });
    if (n < max_order) level.first_child = child_starts(ngrams, longer);
    if (n > 0 && n < max_order) level.continuation = continuation_counts(ngrams, longer, fit, n);
    level.raw = ngrams.counts;
    level.raw.shrink_to_fit();
    longer = std::move(ngrams);
  }
}

std::uint32_t NgramTrie::child(int n, std::uint32_t node, std::uint8_t symbol) const {
  const auto [begin, end] = children(n, node);
  const std::vector<std::uint8_t>& symbols = level(n + 1).symbol;
  const auto first = symbols.begin() + begin, last = symbols.begin() + end;
  const auto at = std::lower_bound(first, last, symbol);
  return at != last && *at == symbol ? static_cast<std::uint32_t>(at - symbols.begin()) : kNone;
}

NgramContext::NgramContext(const NgramTrie& trie) : trie_(&trie) {
  nodes_.fill(NgramTrie::kNone);
  nodes_[0] = 0;
}

void NgramContext::push(std::uint8_t symbol) {
  for (int m = trie_->max_order() - 1; m >= 1; --m) {
    const std::uint32_t shorter = context(m - 1);
    nodes_[static_cast<std::size_t>(m)] = shorter == NgramTrie::kNone ? NgramTrie::kNone : trie_->child(m - 1, shorter, symbol);
  }
}

std::vector<double> witten_bell_bits(const NgramTrie& trie, std::span<const std::uint8_t> text) {
  std::vector<double> sums(static_cast<std::size_t>(trie.max_order()));
  NgramContext contexts(trie);
  for (const std::uint8_t next : text) {
    double p = 1.0 / 256.0;
    for (int n = 1; n <= trie.max_order(); ++n) {
      p = witten_bell_step(trie, n, contexts.context(n - 1), next, p);
      sums[static_cast<std::size_t>(n - 1)] -= std::log2(p);
    }
    contexts.push(next);
  }
  for (double& sum : sums) sum /= static_cast<double>(text.size());
  return sums;
}

double witten_bell_probability(const NgramTrie& trie, std::span<const std::uint8_t> context, std::uint8_t next, int order) {
  NgramContext contexts(trie);
  for (const std::uint8_t byte : context.last(std::min<std::size_t>(context.size(), kMaxOrder))) contexts.push(byte);
  double p = 1.0 / 256.0;
  for (int n = 1; n <= order; ++n) p = witten_bell_step(trie, n, contexts.context(n - 1), next, p);
  return p;
}

double compat_bits(const NgramTrie& trie, std::span<const std::uint8_t> text, int order) {
  double sum = 0;
  NgramContext contexts(trie);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 >= static_cast<std::size_t>(order)) {
      const double p1 = unigram_probability(trie, text[i]);
      const std::uint32_t context = contexts.context(order - 1);
      const std::uint32_t node = context == NgramTrie::kNone ? NgramTrie::kNone : trie.child(order - 1, context, text[i]);
      double p = p1;
      if (node != NgramTrie::kNone) {
        const auto [begin, end] = trie.children(order - 1, context);
        double total = 0;
        for (std::uint32_t c = begin; c < end; ++c) total += trie.level(order).raw[c];
        p = 0.75 * trie.level(order).raw[node] / total + 0.25 * p1;
      }
      sum += -std::log2(std::max(p, 1e-12));
    }
    contexts.push(text[i]);
  }
  return sum / static_cast<double>(text.size());
}

double unigram_bits(const NgramTrie& trie, std::span<const std::uint8_t> text) {
  std::array<double, 256> cost{};
  for (std::size_t b = 0; b < cost.size(); ++b) cost[b] = -std::log2(unigram_probability(trie, static_cast<std::uint8_t>(b)));
  double sum = 0;
  for (const std::uint8_t byte : text) sum += cost[byte];
  return sum / static_cast<double>(text.size());
}

}  // namespace dormouse::evaluate
