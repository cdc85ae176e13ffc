// splitmix64: every random number of a run is a pure function of a key and a counter.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace dormouse::base {

constexpr std::uint64_t splitmix64_mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// A stream: state += golden gamma, then the finaliser (Steele, Lea, Flood 2014).
class SplitMix64 {
 public:
  explicit constexpr SplitMix64(std::uint64_t seed) : state_(seed) {}
  constexpr std::uint64_t next() { return splitmix64_mix(state_ += 0x9E3779B97F4A7C15ULL); }
  constexpr std::uint64_t state() const { return state_; }               // the seed of a stream that goes on where this one stands
  constexpr std::uint64_t below(std::uint64_t n) { return next() % n; }  // [0, n)
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  double normal() {                                                                   // Box-Muller, cosine branch
    const double u1 = 1.0 - uniform();
    const double u2 = uniform();
    return std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
  }

 private:
  std::uint64_t state_;
};

}  // namespace dormouse::base
