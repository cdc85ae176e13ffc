// What BPB must beat: n-gram models and compressors on the exact eval window, fitted on the exact training bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dormouse::evaluate {

struct Anchor {
  std::string name;  // "uniform", "unigram", "kneser-ney 3", "witten-bell 5", "compat 5", "bzip2 alone", "bzip2 conditional"
  double bpb = 0;    // bits per byte of the eval text; NaN when not built
  std::string note;  // "not a distribution", "not built", ""
};

// Interpolated modified Kneser-Ney, three discounts per order (Chen & Goodman 1999), orders 1..max_order (byte contexts of
// 0..max_order-1), the lowest interpolated with uniform 1/256. Scoring starts each eval text with no left context. Sums to 1.
class KneserNey {
 public:
  KneserNey(std::span<const std::uint8_t> fit, int max_order);
  ~KneserNey();
  KneserNey(KneserNey&&) noexcept;
  double probability(std::span<const std::uint8_t> context, std::uint8_t next, int order) const;
  std::vector<double> bits_per_byte(std::span<const std::uint8_t> text) const;  // one per order 1..max_order

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct AnchorOptions {
  int max_order = 8;
  bool compressors = true;
  bool slow_compressors = true;  // zstd -19 and brotli -q 11: several seconds a megabyte
  // Conditional sizes compress at most the last so many bytes of the fit before the text; the note says so.
  std::uint64_t compressor_fit_limit = 8ULL << 20;
};
// The compressors alone: options.compressors is not looked at. A library that fails: base::Error.
std::vector<Anchor> compressor_anchors(std::span<const std::uint8_t> fit, std::span<const std::uint8_t> text, const AnchorOptions& options);
// Empty text: base::Error.
std::vector<Anchor> anchors(std::span<const std::uint8_t> fit, std::span<const std::uint8_t> text, const AnchorOptions& options = {});

// The best Kneser-Ney row of `anchors`, if any.
std::optional<Anchor> best_kneser_ney(std::span<const Anchor> anchors);

}  // namespace dormouse::evaluate
