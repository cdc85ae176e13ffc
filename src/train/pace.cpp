#include "train/pace.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dormouse::train {
namespace {

constexpr std::size_t kMedianSteps = 101;
constexpr std::int64_t kEvaluations = 10;  // default cadence: every tenth of the run
constexpr double kEvalShare = 0.1;         // unless evaluating would take more than this share of the time

}  // namespace

optim::Schedule make_schedule(const TrainConfig& train) {
  if (train.steps > 0) return optim::Schedule::for_steps(train.lr, train.steps, train.decay_fraction);
  return optim::Schedule::for_time_limit(train.lr);
}

optim::Schedule extended_schedule(const TrainConfig& train, const Progress& start, std::int64_t total) {
  auto schedule = optim::Schedule::for_steps(train.lr, total, train.decay_fraction);
  schedule.warm = start.schedule.warm;
  if (schedule.decay_start < start.step) {
    schedule.decay_start = start.step;
    schedule.decay_steps = total - start.step;
  }
  return schedule;
}

Pace::Pace(const TrainConfig& train, const Progress& start)
    : train_(train), last_log_(start.elapsed), last_save_(start.elapsed), last_eval_(start.elapsed) {}

void Pace::stepped(double seconds) {
  recent_.push_back(seconds);
  if (recent_.size() > kMedianSteps) recent_.pop_front();
  ++steps_;
  ++steps_since_log_;
}

double Pace::median_step_seconds() const {
  if (recent_.empty()) return 0;
  std::vector<double> sorted(recent_.begin(), recent_.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
  return sorted[sorted.size() / 2];
}

double Pace::steps_by_time(const Progress& progress) const {
  const double left = std::max(0.0, train_.time_limit - progress.elapsed);
  const double each = progress.step > 0 ? progress.elapsed / static_cast<double>(progress.step) : 0;
  return left / std::max(1e-6, each);
}

double Pace::steps_left(const Progress& progress) const {
  const auto& schedule = progress.schedule;
  if (schedule.decay_start < 0) return steps_by_time(progress);
  return static_cast<double>(schedule.decay_start + schedule.decay_steps - progress.step);
}

bool Pace::latch_decay(Progress& progress) const {
  auto& schedule = progress.schedule;
  if (schedule.decay_start >= 0 || progress.elapsed < (1 - train_.decay_fraction) * train_.time_limit) return false;
  schedule.decay_start = progress.step;
  schedule.decay_steps = train_.decay_fraction > 0 ? std::max<std::int64_t>(1, std::llround(steps_by_time(progress))) : 0;
  return true;
}

bool Pace::stats_due(const Progress& progress) const {
  if (train_.log_every > 0) return (progress.step + 1) % train_.log_every == 0 || progress.step == 0;
  return steps_ == 0 || progress.elapsed + 2 * median_step_seconds() - last_log_ >= kLogSeconds;
}

bool Pace::log_due(const Progress& progress) const {
  if (train_.log_every > 0) return progress.step % train_.log_every == 0 || progress.step == 1;
  return steps_ == 1 || progress.elapsed - last_log_ >= kLogSeconds;
}

bool Pace::eval_due(const Progress& progress) const {
  if (train_.eval_every > 0) return progress.step % train_.eval_every == 0;
  if (progress.elapsed - last_eval_ < eval_seconds_ / kEvalShare) return false;
  if (train_.steps > 0) {
    // A short run evaluates at its end only: an evaluation costs about as much as several steps.
    const std::int64_t tenth = train_.steps / kEvaluations;
    return tenth > 0 && progress.step % tenth == 0 && (eval_seconds_ > 0 || progress.elapsed >= kLogSeconds);
  }
  return progress.elapsed - last_eval_ >= train_.time_limit / static_cast<double>(kEvaluations);
}

bool Pace::checkpoint_due(const Progress& progress) const {
  if (train_.ckpt_every > 0) return progress.step % train_.ckpt_every == 0;
  return progress.elapsed - last_save_ >= kCheckpointSeconds;
}

void Pace::logged(const Progress& progress) {
  last_log_ = progress.elapsed;
  steps_since_log_ = 0;
}

void Pace::evaluated(const Progress& progress, double seconds) {
  last_eval_ = progress.elapsed;
  eval_seconds_ = seconds;
}

void Pace::saved(const Progress& progress) { last_save_ = progress.elapsed; }

void Pace::save_failed(const Progress& progress) { last_save_ = progress.elapsed - kCheckpointSeconds + kRetrySeconds; }

bool SkipCounter::add(std::int64_t step, std::int64_t log_window) {
  steps_.push_back(step);
  while (steps_.front() <= step - std::max(log_window, kSkipWindow)) steps_.pop_front();
  return static_cast<std::int64_t>(steps_.size()) > kMostSkipped;
}

}  // namespace dormouse::train
