// Where the time of a training step goes on this machine, beside what its matrix products alone would take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/speed.h"
#include "train/config.h"

namespace dormouse::train {

using decode::Spread;

struct StageSpeed {
  std::string name;          // "attention", ..., "update"; what stands outside of the named parts is "loop"
  Spread forward, backward;  // milliseconds a step; the optimizer's and the data's rows use forward alone
  double gflop = 0;          // of the products of a step, from their shapes; 0: not counted
};

struct TrainSpeed {
  std::vector<StageSpeed> stages;
  Spread step;               // milliseconds, all of it
  Spread bytes_per_second;   // bytes trained
  Spread gflops, limit;      // GFLOP/s of the step's counted products; of one large product in the same run
  double gflop = 0;          // a step
  double start_seconds = 0;  // from nothing to the end of the first step: weights drawn, data made, kernels prepared
};

// Trains an untrained network of `config` on made-up text, `repeats` steps after two unmeasured ones, a large matrix product timed before
// each. Touches no file. base::Error when the memory does not suffice.
TrainSpeed measure_training(const RunConfig& config, std::int64_t repeats);

}  // namespace dormouse::train
