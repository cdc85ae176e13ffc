#include "evaluate/anchors.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/units.h"
#include "evaluate/compressors.h"
#include "evaluate/ngram.h"

namespace dormouse::evaluate {
namespace {

constexpr int kCompatOrder = 5;
constexpr std::string_view kKneserNey = "kneser-ney ";

}  // namespace

std::vector<Anchor> compressor_anchors(std::span<const std::uint8_t> fit, std::span<const std::uint8_t> text,
                                       const AnchorOptions& options) {
  std::vector<Anchor> out;
  const auto used = static_cast<std::size_t>(std::min<std::uint64_t>(fit.size(), options.compressor_fit_limit));
  const auto before = fit.last(used);
  std::vector<std::uint8_t> both(before.begin(), before.end());
  both.insert(both.end(), text.begin(), text.end());
  const std::string note = used < fit.size() ? "after the last " + base::human_bytes(used) + " of the fit" : "";
  const auto bpb = [&](std::uint64_t bytes) { return 8.0 * static_cast<double>(bytes) / static_cast<double>(text.size()); };
  for (const Compressor& compressor : compressors()) {
    if (compressor.slow && !options.slow_compressors) continue;
    const std::string name(compressor.name);
    if (compressor.size == nullptr) {
      out.push_back({name + " alone", std::numeric_limits<double>::quiet_NaN(), "not built"});
      out.push_back({name + " conditional", std::numeric_limits<double>::quiet_NaN(), "not built"});
      continue;
    }
    out.push_back({name + " alone", bpb(compressor.size(text)), ""});
    const std::uint64_t base_size = compressor.size(before), whole = compressor.size(both);
    out.push_back({name + " conditional", bpb(whole - std::min(base_size, whole)), note});
  }
  return out;
}

std::vector<Anchor> anchors(std::span<const std::uint8_t> fit, std::span<const std::uint8_t> text, const AnchorOptions& options) {
  if (text.empty()) throw base::Error("anchors: the text to score is empty; give held-out text of at least one byte");
  const NgramTrie trie(fit, options.max_order);
  std::vector<Anchor> out = {{"uniform", 8.0, ""}, {"unigram", unigram_bits(trie, text), ""}};
  const auto add = [&](std::string_view name, const std::vector<double>& bits) {
    for (std::size_t k = 0; k < bits.size(); ++k) out.push_back({std::string(name) + std::to_string(k + 1), bits[k], ""});
  };
  add(kKneserNey, kneser_ney_bits(trie, text));
  add("witten-bell ", witten_bell_bits(trie, text));
  const int compat_order = std::min(kCompatOrder, options.max_order);
  out.push_back({"compat " + std::to_string(compat_order), compat_bits(trie, text, compat_order), "not a distribution"});
  if (options.compressors) {
    const auto more = compressor_anchors(fit, text, options);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

std::optional<Anchor> best_kneser_ney(std::span<const Anchor> anchors) {
  std::optional<Anchor> best;
  for (const Anchor& anchor : anchors) {
    if (anchor.name.starts_with(kKneserNey) && (!best || anchor.bpb < best->bpb)) best = anchor;
  }
  return best;
}

}  // namespace dormouse::evaluate
