// One training step: forward and backward over the accumulation, the firewall, the update.
#pragma once

#include <vector>

#include "network/dormouse/loop.h"
#include "optim/optimizer.h"
#include "train/config.h"
#include "train/feed.h"

namespace dormouse::train {

struct StepResult {
  double nats = 0;      // mean cross-entropy of the final readout, nats per byte
  double rec_nats = 0;  // mean over the iterations
  double loss = 0;      // what was minimised
  bool applied = true;  // false: the firewall made the step a no-op
  optim::StepReport report;
  std::vector<network::IterationStats> stats;  // of the last part, when wanted
};

// Where the wall time of a step goes.
struct StepSeconds {
  std::vector<autograd::StageSeconds> stages;
  double update = 0, retraction = 0;  // of the optimizer
};

// The weights and their optimizer; owns both.
class Trainer {
 public:
  Trainer(const RunConfig& config, network::Parameters parameters);
  StepResult step(const StepData& data, const optim::Rates& rates, bool want_stats, StepSeconds* seconds = nullptr);

  // The memory's rows and their optimizer state are what they were before the first step.
  void forget_memory();

  bool finite() const;  // every weight is a finite number

  network::Parameters& parameters() { return parameters_; }
  optim::Optimizer& optimizer() { return optimizer_; }

 private:
  void zero_gradients();
  RunConfig config_;
  network::Parameters parameters_;
  std::vector<tensor::Parameter*> list_;
  optim::Optimizer optimizer_;
  std::vector<std::uint32_t> written_;  // memory rows whose gradient the last step wrote: a table is too large to be zeroed whole
};

}  // namespace dormouse::train
