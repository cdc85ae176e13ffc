#include "decode/generate.h"

#include "base/clock.h"

namespace dormouse::decode {

using base::Clock;
using base::seconds_since;

GenerateStats generate(Lanes& lanes, std::size_t lane, Sampler& sampler, std::span<const std::uint8_t> prompt, std::int64_t bytes,
                       const std::function<bool(std::uint8_t)>& put) {
  constexpr std::uint8_t kNewline = '\n';
  if (prompt.empty()) prompt = std::span(&kNewline, 1);
  std::vector<std::uint8_t> text(prompt.begin(), prompt.end());
  GenerateStats stats;
  stats.prompt_bytes = static_cast<std::int64_t>(text.size());
  auto start = Clock::now();
  lanes.restart(lane);
  lanes.read(lane, text);
  stats.prompt_seconds = seconds_since(start);
  start = Clock::now();
  while (bytes < 0 || stats.written_bytes < bytes) {
    const std::uint8_t byte = sampler.next(lanes.logits(lane), text);
    ++stats.written_bytes;
    if (!put(byte)) break;
    text.push_back(byte);
    if (text.size() > 2 * kPenaltyWindow)
      text = std::vector<std::uint8_t>(text.end() - static_cast<std::ptrdiff_t>(kPenaltyWindow), text.end());
    if (bytes < 0 || stats.written_bytes < bytes) lanes.read(lane, std::span(&byte, 1));
  }
  stats.write_seconds = seconds_since(start);
  return stats;
}

}  // namespace dormouse::decode
