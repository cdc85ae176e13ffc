// How far weights stored narrow say what the f32 weights of the same model say, both read by the decoder.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "network/dormouse/weights.h"

namespace dormouse::evaluate {

struct Agreement {
  std::int64_t positions = 0;
  double largest = 0, mean = 0;  // |difference of a logit|, over the 256 logits of every position
  std::int64_t same_top = 0;     // positions whose likeliest byte (lowest value on ties) is that of the reference
  double bpb = 0;                // of these weights; 0 when there is nothing to score
};

// For each of `others`, of the reference's config: the window is read in rows of `row` bytes (0: max_seq_len) that do not overlap, from a
// fresh state each. A position is scored on the byte after it, across the end of its row too, so that every byte but the first counts once:
// the windowing of bits_per_byte (evaluate/bpb.h). Sums are f64. progress(positions read) after each row. base::Error: a logit that is not
// finite.
std::vector<Agreement> agreement(const network::Weights& reference, std::span<const network::Weights> others,
                                 std::span<const std::uint8_t> window, std::int64_t row = 0,
                                 const std::function<void(std::int64_t)>& progress = {});

}  // namespace dormouse::evaluate
