#include "evaluate/agreement.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "decode/lanes.h"

namespace dormouse::evaluate {
namespace {

constexpr std::size_t kClasses = 256;

// logits [bytes,256] of a row, from a fresh state.
void read_row(decode::Lanes& lanes, std::span<const std::uint8_t> row, std::vector<float>& logits) {
  logits.clear();
  lanes.restart();
  lanes.read(0, row, [&](std::span<const float> piece) { logits.insert(logits.end(), piece.begin(), piece.end()); });
}

// -log2 softmax(logits)[label]
double bits(std::span<const float> logits, std::uint8_t label) {
  const auto top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return (std::log(sum) + top - static_cast<double>(logits[label])) / std::numbers::ln2;
}

std::ptrdiff_t likeliest(std::span<const float> logits) { return std::max_element(logits.begin(), logits.end()) - logits.begin(); }

// Sums of one model; `mean` and `bpb` are sums until the end.
struct Reader {
  decode::Lanes lanes;
  std::vector<float> logits;
  Agreement result;

  void compare(std::span<const float> theirs, std::span<const float> ours) {
    for (std::size_t c = 0; c < kClasses; ++c) {
      const double difference = std::abs(static_cast<double>(ours[c]) - static_cast<double>(theirs[c]));
      if (!std::isfinite(difference))
        throw base::Error("a logit is not finite: the weights are out of range; train or export the model anew");
      result.largest = std::max(result.largest, difference);
      result.mean += difference;
    }
    if (likeliest(ours) == likeliest(theirs)) ++result.same_top;
    ++result.positions;
  }
};

}  // namespace

std::vector<Agreement> agreement(const network::Weights& reference, std::span<const network::Weights> others,
                                 std::span<const std::uint8_t> window, std::int64_t row,
                                 const std::function<void(std::int64_t)>& progress) {
  const auto length = static_cast<std::size_t>(row > 0 ? row : reference.config.max_seq_len);
  decode::Lanes lanes(reference, 1);
  std::vector<float> expected;
  std::vector<Reader> readers;
  for (const auto& weights : others) readers.push_back({decode::Lanes(weights, 1), {}, {}});
  for (std::size_t begin = 0; begin < window.size(); begin += length) {
    const auto bytes = window.subspan(begin, std::min(length, window.size() - begin));
    read_row(lanes, bytes, expected);
    for (auto& reader : readers) {
      read_row(reader.lanes, bytes, reader.logits);
      for (std::size_t t = 0; t < bytes.size(); ++t) {
        const auto ours = std::span<const float>(reader.logits).subspan(t * kClasses, kClasses);
        reader.compare(std::span<const float>(expected).subspan(t * kClasses, kClasses), ours);
        if (begin + t + 1 < window.size()) reader.result.bpb += bits(ours, window[begin + t + 1]);
      }
    }
    if (progress) progress(static_cast<std::int64_t>(begin + bytes.size()));
  }
  std::vector<Agreement> results;
  for (auto& reader : readers) {
    Agreement& result = reader.result;
    if (result.positions > 0) result.mean /= static_cast<double>(result.positions) * static_cast<double>(kClasses);
    if (result.positions > 1) result.bpb /= static_cast<double>(result.positions - 1);
    results.push_back(result);
  }
  return results;
}

}  // namespace dormouse::evaluate
