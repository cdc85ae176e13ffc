// When things are due: log lines, evaluations, checkpoints, the decay of a run by time.
#pragma once

#include <cstdint>
#include <deque>

#include "train/checkpoint.h"
#include "train/config.h"

namespace dormouse::train {

inline constexpr double kLogSeconds = 5, kCheckpointSeconds = 600, kRetrySeconds = 60;
inline constexpr std::int64_t kMostSkipped = 8, kSkipWindow = 100, kOrthonormalEvery = 500;
inline constexpr double kOrthonormalLimit = 1e-3;

// Schedule of a new run.
optim::Schedule make_schedule(const TrainConfig& train);

// Of a finished run that goes on from `start`, the state before its decay, to `total` steps.
optim::Schedule extended_schedule(const TrainConfig& train, const Progress& start, std::int64_t total);

class Pace {
 public:
  Pace(const TrainConfig& train, const Progress& start);

  // After a step of `seconds`. Everywhere below, progress.step is the next step and progress.elapsed includes everything so far.
  void stepped(double seconds);

  // By time: when (1 - decay_fraction) of the limit has passed, the rest of the run is fixed in steps: the remaining time over the mean
  // time of a step so far, evaluations and saves included. True when it happened now.
  bool latch_decay(Progress& progress) const;

  // Whether the coming step will probably be logged (its gate statistics are wanted).
  bool stats_due(const Progress& progress) const;
  bool log_due(const Progress& progress) const;
  bool eval_due(const Progress& progress) const;
  bool checkpoint_due(const Progress& progress) const;
  void logged(const Progress& progress);
  void evaluated(const Progress& progress, double seconds);
  void saved(const Progress& progress);
  void save_failed(const Progress& progress);  // by time: the next try comes after kRetrySeconds

  double median_step_seconds() const;
  // Steps until the end: exact once the schedule knows it, before that by the remaining time.
  double steps_left(const Progress& progress) const;
  std::int64_t steps_since_log() const { return steps_since_log_; }

 private:
  double steps_by_time(const Progress& progress) const;
  const TrainConfig& train_;
  std::deque<double> recent_;  // seconds of the last 101 steps
  double last_log_ = 0, last_save_ = 0, last_eval_ = 0, eval_seconds_ = 0;
  std::int64_t steps_ = 0, steps_since_log_ = 0;
};

// Counts no-op steps; more than kMostSkipped among the last max(log window, kSkipWindow) is a broken run.
class SkipCounter {
 public:
  // True: stop the run.
  bool add(std::int64_t step, std::int64_t log_window);

 private:
  std::deque<std::int64_t> steps_;
};

}  // namespace dormouse::train
