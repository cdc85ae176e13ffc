// What this program computes on this machine, as one number: equal numbers, equal bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dormouse::train {

struct Fingerprint {
  std::string cpu_level, gemm;
  int threads = 0;
  std::uint64_t training = 0, decoding = 0;
};
// Of a small network with fixed weights and text: the weights after three steps, and logits of the step form. One per CPU level and thread
// count from 1 to `most_threads`. oneDNN runs at the highest level only; the own products take its place below. Leaves level and threads
// as they were.
std::vector<Fingerprint> fingerprints(int most_threads);

}  // namespace dormouse::train
