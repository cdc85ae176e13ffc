#include "optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace dormouse::optim {

Schedule Schedule::for_steps(double lr, std::int64_t steps, double decay_fraction, double warm_fraction, std::int64_t warm_min) {
  if (steps < 1) throw base::Error(fmt::format("a schedule needs at least one step, not {}; give --steps 1 or more", steps));
  if (!(decay_fraction >= 0 && decay_fraction <= 1))
    throw base::Error(fmt::format("decay fraction {} lies outside 0..1; it is the share of the steps in which the learning rate falls to 0",
                                  decay_fraction));
  if (!(warm_fraction >= 0 && warm_fraction <= 1))
    throw base::Error(
        fmt::format("warm-up fraction {} lies outside 0..1; it is the share of the steps in which the learning rate rises", warm_fraction));
  const auto share = [&](double fraction) { return static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(steps))); };
  Schedule schedule;
  schedule.lr = lr;
  schedule.warm = std::max<std::int64_t>({share(warm_fraction), warm_min, 1});
  schedule.decay_steps = share(decay_fraction);
  schedule.decay_start = steps - schedule.decay_steps;
  return schedule;
}

Schedule Schedule::for_time_limit(double lr) {
  Schedule schedule;
  schedule.lr = lr;
  schedule.warm = 100;
  return schedule;
}

double Schedule::without_decay(std::int64_t step) const {
  return lr * std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(std::max<std::int64_t>(warm, 1)));
}

double Schedule::at(std::int64_t step) const {
  const double risen = without_decay(step);
  if (decay_start < 0 || step < decay_start) return risen;
  if (finished(step)) return 0;
  const double x = static_cast<double>(step - decay_start) / static_cast<double>(decay_steps);
  return risen * std::pow(1 - x, 1.5);
}

}  // namespace dormouse::optim
