// Interpolated modified Kneser-Ney (Chen & Goodman 1999, section 3), byte-level. With h' = h without its first byte:
//   P_k(w|h) = max(c(hw) - D(c(hw)), 0) / sum_v c(hv) + (D1 N1(h) + D2 N2(h) + D3 N3+(h)) / sum_v c(hv) * P_{k-1}(w|h')
// c: occurrences on the order asked for, distinct left neighbours on every order below it; Ni(h) = successors of h with count i.
// Y = n1 / (n1 + 2 n2), Di = i - (i + 1) Y n_{i+1} / n_i from the counts of counts of that order. P_0 = 1/256; a context without successors
// takes P_{k-1}.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "base/error.h"
#include "evaluate/anchors.h"
#include "evaluate/ngram.h"

namespace dormouse::evaluate {
namespace {

using Discounts = std::array<double, 4>;  // by min(count, 3); [0] = 0

// A count of counts of zero, or a discount outside (0, i], leaves no estimate (orders 1 and 2 of small texts): i / 2 then.
template <class Counts>
Discounts estimate_discounts(const Counts& counts) {
  std::array<double, 5> n{};
  for (const auto count : counts) {
    if (count >= 1 && count <= 4) n[count] += 1.0;
  }
  const double y = n[1] > 0 ? n[1] / (n[1] + 2.0 * n[2]) : 0.0;
  Discounts d{};
  for (std::size_t i = 1; i <= 3; ++i) {
    const auto di = static_cast<double>(i);
    d[i] = n[i] > 0 && y > 0 ? di - (di + 1.0) * y * n[i + 1] / n[i] : 0.0;
    if (!(d[i] > 0.0) || d[i] > di) d[i] = di / 2.0;
  }
  return d;
}

struct Sums {
  double total = 0, seen = 0, freed = 0;
  void add(double count, std::size_t bucket, bool is_next, const Discounts& d) {
    total += count;
    freed += d[bucket];
    if (is_next) seen = count - d[bucket];
  }
  double interpolate(double lower) const { return (seen + freed * lower) / total; }
};

class Model {
 public:
  explicit Model(const NgramTrie& trie) : trie_(&trie) {
    for (int n = 1; n <= trie.max_order(); ++n) {
      raw_[static_cast<std::size_t>(n)] = estimate_discounts(trie.level(n).raw);
      continuation_[static_cast<std::size_t>(n)] = estimate_discounts(trie.level(n).continuation);
    }
  }

  // out[k-1] = P_k(next | the contexts) for k = 1..max_order.
  void probabilities(const NgramContext& contexts, std::uint8_t next, std::span<double> out) const {
    double lower = 1.0 / 256.0;
    const int max_order = trie_->max_order();
    for (int n = 1; n <= max_order; ++n) {
      double& top = out[static_cast<std::size_t>(n - 1)];
      top = lower;
      const std::uint32_t context = contexts.context(n - 1);
      if (context == NgramTrie::kNone) continue;
      const auto [begin, end] = trie_->children(n - 1, context);
      if (begin == end) continue;
      const NgramTrie::Level& level = trie_->level(n);
      Sums raw, continuation;
      for (std::uint32_t i = begin; i < end; ++i) {
        const bool is_next = level.symbol[i] == next;
        raw.add(level.raw[i], std::min<std::size_t>(level.raw[i], 3), is_next, raw_[static_cast<std::size_t>(n)]);
        if (n == max_order) continue;
        const std::uint16_t count = level.continuation[i];
        continuation.add(count, std::min<std::size_t>(count, 3), is_next, continuation_[static_cast<std::size_t>(n)]);
      }
      top = raw.interpolate(lower);
      if (n < max_order) lower = continuation.interpolate(lower);
    }
  }

 private:
  const NgramTrie* trie_;
  std::array<Discounts, kMaxOrder + 1> raw_{}, continuation_{};
};

std::vector<double> score(const NgramTrie& trie, const Model& model, std::span<const std::uint8_t> text) {
  const auto orders = static_cast<std::size_t>(trie.max_order());
  std::vector<double> sums(orders);
  std::array<double, kMaxOrder> p{};
  NgramContext contexts(trie);
  for (const std::uint8_t next : text) {
    model.probabilities(contexts, next, p);
    for (std::size_t k = 0; k < orders; ++k) sums[k] -= std::log2(p[k]);
    contexts.push(next);
  }
  for (double& sum : sums) sum /= static_cast<double>(text.size());
  return sums;
}

}  // namespace

struct KneserNey::Impl {
  Impl(std::span<const std::uint8_t> fit, int max_order) : trie(fit, max_order), model(trie) {}
  NgramTrie trie;
  Model model;
};

KneserNey::KneserNey(std::span<const std::uint8_t> fit, int max_order) : impl_(std::make_unique<Impl>(fit, max_order)) {}
KneserNey::~KneserNey() = default;
KneserNey::KneserNey(KneserNey&&) noexcept = default;

double KneserNey::probability(std::span<const std::uint8_t> context, std::uint8_t next, int order) const {
  if (order < 1 || order > impl_->trie.max_order()) throw base::Error("Kneser-Ney: no order " + std::to_string(order));
  NgramContext contexts(impl_->trie);
  for (const std::uint8_t byte : context.last(std::min<std::size_t>(context.size(), kMaxOrder))) contexts.push(byte);
  std::array<double, kMaxOrder> p{};
  impl_->model.probabilities(contexts, next, p);
  return p[static_cast<std::size_t>(order - 1)];
}

std::vector<double> KneserNey::bits_per_byte(std::span<const std::uint8_t> text) const { return score(impl_->trie, impl_->model, text); }

std::vector<double> kneser_ney_bits(const NgramTrie& trie, std::span<const std::uint8_t> text) { return score(trie, Model(trie), text); }

}  // namespace dormouse::evaluate
