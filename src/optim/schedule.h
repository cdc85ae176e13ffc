// WSD: warm up, hold, decay; by steps, or latched from a time limit.
#pragma once

#include <cstdint>

namespace dormouse::optim {

// Learning rates of one step: of the memory's rows, and of all else.
struct Rates {
  double all = 0, table = 0;
};

// lr(s) = lr * min(1, (s+1)/warm); from decay_start on also times (1 - x)^1.5, x = (s - decay_start) / decay_steps, 0 at the horizon.
struct Schedule {
  double lr = 3e-3;
  std::int64_t warm = 20;
  std::int64_t decay_start = -1;  // -1: not known yet (time limit)
  std::int64_t decay_steps = 0;

  static Schedule for_steps(double lr, std::int64_t steps, double decay_fraction, double warm_fraction = 0.02, std::int64_t warm_min = 20);
  static Schedule for_time_limit(double lr);  // warm = 100, decay latched later
  double at(std::int64_t step) const;
  double without_decay(std::int64_t step) const;
  bool finished(std::int64_t step) const { return decay_start >= 0 && step >= decay_start + decay_steps; }
};

}  // namespace dormouse::optim
