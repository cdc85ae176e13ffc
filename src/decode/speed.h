// How fast a model decodes here, and how fast it could if reading its weights were all there is to do.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/lanes.h"

namespace dormouse::decode {

// Bytes of weights that one byte of one text is multiplied with: those of the block max_iter times, the others once.
std::uint64_t weight_bytes(const network::Weights& weights);

// Seconds to read them as often, each matrix front to back: what a byte costs at least, but for weights that the caches keep from one
// iteration to the next. Warm, the shortest of a few, by all threads and by one in turns: where others use a core, one is faster, and a
// step is done so too (ops::cpu::Team::fit). depth 0 = max_iter.
double reading_seconds(const network::Weights& weights, std::int64_t depth = 0);

struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread_of(std::vector<double> values);  // at least one

struct Speed {
  Spread one, batch, prompt;  // bytes a second: one text, `streams` texts together, reading a prompt
  Spread limit;               // 1 / reading_seconds, the better of before and after the steps of one text
  std::int64_t streams = 0, repeats = 0;
};
// Each measured `repeats` times, taking turns. A repeat lasts a third of a second, and as long as it takes to read the weights for 80 bytes
// and to read a prompt of 512.
Speed measure_speed(const network::Weights& weights, std::int64_t streams, std::int64_t repeats);

}  // namespace dormouse::decode
