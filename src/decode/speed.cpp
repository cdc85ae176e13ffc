#include "decode/speed.h"

#include <algorithm>

#include "base/clock.h"
#include "ops/cpu/team.h"

namespace dormouse::decode {
namespace {

using base::Clock;
using base::seconds_since;

volatile std::uint64_t sink;

// Bytes that differ from stream to stream and from step to step.
std::uint8_t some_byte(std::size_t stream, std::uint64_t step) { return static_cast<std::uint8_t>(32 + (step * 7 + stream * 31) % 95); }

// Bytes a second of all streams together, over at least `seconds`.
double stepping(Lanes& lanes, std::uint64_t& at, double seconds) {
  std::vector<std::uint8_t> bytes(lanes.count());
  constexpr std::uint64_t kSteps = 16;  // between two looks at the clock
  std::uint64_t steps = 0;
  const auto start = Clock::now();
  double elapsed = 0;
  do {
    for (std::uint64_t i = 0; i < kSteps; ++i, ++at) {
      for (std::size_t stream = 0; stream < bytes.size(); ++stream) bytes[stream] = some_byte(stream, at);
      lanes.step(bytes);
    }
    steps += kSteps;
    elapsed = seconds_since(start);
  } while (elapsed < seconds);
  return static_cast<double>(steps * bytes.size()) / elapsed;
}

double reading(Lanes& lanes, std::uint64_t& at) {
  std::vector<std::uint8_t> bytes(512);
  for (auto& byte : bytes) byte = some_byte(0, at++);
  const auto start = Clock::now();
  lanes.read(0, bytes);
  return static_cast<double>(bytes.size()) / seconds_since(start);
}

}  // namespace

std::uint64_t weight_bytes(const network::Weights& weights) {
  std::uint64_t loop = 0, once = 0;
  for (const auto* m : network::loop_matrices(weights)) loop += m->bytes();
  for (const auto* m : network::once_matrices(weights)) once += m->bytes();
  return loop * static_cast<std::uint64_t>(weights.config.max_iter) + once;
}

double reading_seconds(const network::Weights& weights, std::int64_t depth) {
  const std::int64_t iterations = depth > 0 ? depth : weights.config.max_iter;
  const auto loop = network::loop_matrices(weights), once = network::once_matrices(weights);
  constexpr int kRounds = 5, kBytes = 4;
  double best = 1e9;
  const auto round = [&] {
    const auto start = Clock::now();
    for (int i = 0; i < kBytes; ++i) {
      for (std::int64_t n = 0; n < iterations; ++n) sink = ops::read_through(loop);
      sink = ops::read_through(once);
    }
    best = std::min(best, seconds_since(start) / kBytes);
  };
  for (int i = 0; i < kRounds; ++i) {
    ops::cpu::Team::awake(round);
    ops::cpu::Team::alone(round);
  }
  return best;
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return {values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2, values.front(), values.back()};
}

Speed measure_speed(const network::Weights& weights, std::int64_t streams, std::int64_t repeats) {
  Lanes one(weights, 1), batch(weights, static_cast<std::size_t>(streams));
  std::uint64_t at = 0;
  std::vector<double> alone, together, prompt, limit;
  constexpr double kWarm = 0.02, kSeconds = 0.15;
  for (std::int64_t i = 0; i < repeats; ++i) {
    const double before = reading_seconds(weights);
    stepping(one, at, kWarm);
    alone.push_back(stepping(one, at, kSeconds));
    limit.push_back(1 / std::min(before, reading_seconds(weights)));
    stepping(batch, at, kWarm);
    together.push_back(stepping(batch, at, kSeconds));
    prompt.push_back(reading(one, at));
  }
  return {spread_of(alone), spread_of(together), spread_of(prompt), spread_of(limit), streams, repeats};
}

}  // namespace dormouse::decode
