// Generation: the prompt in pieces, then one byte at a time with one state per iteration; the cost of a byte is constant.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "decode/lanes.h"
#include "decode/sampler.h"

namespace dormouse::decode {

struct GenerateStats {
  std::int64_t prompt_bytes = 0, written_bytes = 0;
  double prompt_seconds = 0, write_seconds = 0;
};

// From the start of a lane: reads the prompt (an empty one becomes a newline: something must be read before anything can be said) and
// writes up to `bytes` bytes (-1: until `put` says stop). put(byte) returns false to stop.
GenerateStats generate(Lanes& lanes, std::size_t lane, Sampler& sampler, std::span<const std::uint8_t> prompt, std::int64_t bytes,
                       const std::function<bool(std::uint8_t)>& put);

}  // namespace dormouse::decode
