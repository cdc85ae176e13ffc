// Logits -> whole-number counts, the same on every machine: additions, products and one division of f64 in a fixed order, no libm.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace dormouse::decode {

using Counts = std::array<std::uint32_t, 256>;

// counts[i] = 1 + floor(softmax(logits)[i] * (2^32 - 256)), the likeliest byte gets what is left of 2^32. logits [256]; false when one of
// them is not finite.
bool quantise(std::span<const float> logits, Counts& counts);

}  // namespace dormouse::decode
