// How much memory a run will take, known before anything large is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "train/config.h"

namespace dormouse::train {

struct MemoryPlan {
  std::uint64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0, data = 0;  // bytes
  std::uint64_t copy = 0;  // of the state, for saves beside training: wanted, not needed
  bool recompute = false;  // iterations are made again in backward: activations has one whole, of the others stream and readout
  std::uint64_t total() const { return parameters + gradients + optimizer + activations + data; }
  std::string text() const;  // "210 MB: weights 4.1 MB, ...; saves beside training 12 MB more"
};

// Parameters of a config, from its shapes alone.
std::int64_t parameter_count(const network::ModelConfig& config);
MemoryPlan plan_memory(const RunConfig& config, std::uint64_t corpus_bytes);
// base::Error with the numbers and the ways out when the plan exceeds `available` bytes.
void refuse_above(const MemoryPlan& plan, std::uint64_t available);

}  // namespace dormouse::train
