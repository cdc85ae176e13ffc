#include "train/loop.h"

#include <csignal>
#include <cstring>
#include <sstream>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "evaluate/bpb.h"
#include "train/banner.h"
#include "train/memory_reset.h"
#include "train/resume.h"
#include "train/signals.h"
#include "train/standing.h"

namespace dormouse::train {

using base::Clock;
using base::seconds_since;

Run::Run(const Request& request, bool json, RunDirectory directory, const base::Lock& lock, RunConfig config, RunData data,
         data::ByteStream& stream)
    : request_(request),
      directory_(std::move(directory)),
      lock_(lock),
      config_(std::move(config)),
      data_(std::move(data)),
      stream_(stream),
      log_(directory_.root, json, config_.train.tensorboard),
      trainer_(config_, network::make_parameters(config_.model, static_cast<std::uint64_t>(config_.train.seed))) {}

int Run::start(const MemoryPlan& plan) {
  log_preamble(request_, config_, trainer_);
  print_banner(directory_, config_, data_, plan, trainer_, stream_.windows_in_epoch());
  if (!open()) return 0;
  return train();
}

bool Run::open() {
  const auto resumed = load_newest(directory_, config_, trainer_);
  if (!resumed) {
    if (request_.extend) throw base::UsageError("--extend adds steps to a finished run, and this one has not started; leave it out");
    print_hints(config_, data_.train.bytes);
    begin_anew();
    return true;
  }
  keep_config();
  progress_ = resumed->progress;
  saver_.emplace(directory_, lock_, progress_.step);
  if (resumed->from_previous) {
    log_.event({{"event", std::string("previous")}, {"step", progress_.step}});
    save_now();
  }
  if (request_.extend) {
    extend();
    return true;
  }
  if (progress_.finished() && progress_.last_eval_step == progress_.step) {
    base::log_line(fmt::format("{} is finished: nothing left to train", base::escape(directory_.name())));
    print_summary();
    log_.print(result());
    refuse_lost_stdout();
    return false;
  }
  stream_.seek(progress_.stream);
  base::log_line(fmt::format("resumed at step {} after {} of training", progress_.step, base::human_duration(progress_.elapsed)));
  log_.event({{"event", std::string("resume")}, {"step", progress_.step}, {"elapsed", progress_.elapsed}});
  return true;
}

// Changed on a resume by progress keys and names of the data only.
void Run::keep_config() {
  const std::string text = write_config(config_);
  const auto there = directory_.exists() ? base::read_file(directory_.config()) : std::vector<std::uint8_t>();
  if (std::string_view(reinterpret_cast<const char*>(there.data()), there.size()) != text)
    base::write_file_atomically(directory_.config(), text);
}

void Run::begin_anew() {
  keep_config();
  progress_.schedule = make_schedule(config_.train);
  progress_.stream = stream_.position();
  progress_.anchors = compute_anchors(data_, false);
  log_.event({{"event", std::string("start")},
              {"run_id", config_.run.run_id},
              {"parameters", parameter_count(config_.model)},
              {"train_bytes", static_cast<std::int64_t>(data_.train.bytes)},
              {"eval_bytes", static_cast<std::int64_t>(data_.window.size())}});
  log_.event(anchor_metrics(progress_.anchors));
  base::log_line("  to beat  " + to_beat(progress_.anchors, static_cast<std::int64_t>(data_.window.size())));
  saver_.emplace(directory_, lock_, -1);
  save_now();
}

void Run::extend() {
  if (!progress_.finished()) {
    throw base::UsageError(fmt::format("{} is not finished (step {}); go on with it first: {}", base::escape(directory_.name()),
                                       progress_.step, resume_command(directory_)));
  }
  std::error_code ignored;
  if (!std::filesystem::exists(directory_.stable(), ignored)) {
    throw base::Error(fmt::format("{} has no stable.safetensors, the state before its decay; start another run with more --steps",
                                  base::escape(directory_.name())));
  }
  const std::int64_t done = progress_.schedule.decay_start + progress_.schedule.decay_steps;
  if (*request_.extend > kMostSteps - done) {
    throw base::UsageError(
        fmt::format("--extend {} makes more than the {} steps a run can have; {} are done", *request_.extend, kMostSteps, done));
  }
  const std::int64_t total = done + *request_.extend;
  const auto best = progress_;
  progress_ = load_checkpoint(directory_.stable(), config_, trainer_);
  progress_.best_bpb = best.best_bpb;
  progress_.best_step = best.best_step;
  progress_.elapsed = best.elapsed;
  progress_.schedule = extended_schedule(config_.train, progress_, total);
  config_.train.steps = total;
  config_.train.time_limit = 0;
  stream_.seek(progress_.stream);
  save_now();  // rules the length from here on, whatever config.toml says
  base::write_file_atomically(directory_.config(), write_config(config_));
  base::log_line(fmt::format("extended to {} steps, continuing from step {} before the decay", total, progress_.step));
  log_.event({{"event", std::string("extend")}, {"step", progress_.step}, {"steps", total}});
}

int Run::train() {
  begin_orderly_stop();
  pace_.emplace(config_.train, progress_);
  SkipCounter skips;
  Feed feed(stream_, config_.model, config_.train.accum);
  const double elapsed_before = progress_.elapsed;
  const auto start = Clock::now();
  const auto step_bytes = config_.train.batch * config_.train.accum * config_.train.seq_len;
  if (progress_.eval_pending && !progress_.finished()) evaluate();
  while (!progress_.finished() && stop_signal() == 0) {
    keep_stable();
    const auto step_start = Clock::now();
    if (memory_begins_anew(config_, data_.train.bytes, progress_.stream, pace_->steps_left(progress_))) forget_memory();
    const optim::Rates rates = learning_rates(config_.train, progress_.schedule, progress_.step);
    const StepData bytes = next_data(feed);
    const StepResult result = trainer_.step(bytes, rates, pace_->stats_due(progress_));
    const double seconds = seconds_since(step_start);
    progress_.stream = bytes.after;
    ++progress_.step;
    progress_.elapsed = elapsed_before + seconds_since(start);
    window_.add(result, step_bytes, seconds);
    pace_->stepped(seconds);
    healthy_ = result.applied;
    if (!healthy_) count_skipped(skips);
    if (progress_.step % kOrthonormalEvery == 0) check_orthonormality();
    after_step(result, rates);
    report_saves();
    progress_.elapsed = elapsed_before + seconds_since(start);
    latch_decay();
    check_stdout();
  }
  keep_stable();
  if (const int signal = stop_signal(); signal != 0) return stopped(signal);
  return finish();
}

void Run::forget_memory() {
  trainer_.forget_memory();
  log_.event(
      {{"event", std::string("memory_reset")}, {"step", progress_.step}, {"epoch", static_cast<std::int64_t>(progress_.stream.epoch) + 1}});
  base::log_line(fmt::format("epoch {}: the memory begins anew and fills while the text passes; evaluations on the way see it part full",
                             progress_.stream.epoch + 1));
}

// A text that can no longer be read ends the run, not the steps since the last save.
StepData Run::next_data(Feed& feed) {
  try {
    return feed.next();
  } catch (const base::Error&) {
    save_now();
    throw;
  }
}

int Run::stopped(int signal) {
  save_now();
  base::log_line(fmt::format("stopped by {} after step {}; {} resumes", signal == SIGINT ? "Ctrl-C" : fmt::format("signal {}", signal),
                             progress_.step, what_resumes()));
  return 128 + signal;
}

int Run::finish() {
  if (progress_.last_eval_step != progress_.step) {
    progress_.eval_pending = true;
    save_now();
    evaluate();
    if (progress_.eval_pending) return stopped(stop_signal());
  }
  save_now();
  end_orderly_stop();  // all of it is on disk
  base::show_progress(1, "what n-gram models and compressors reach");
  progress_.anchors = compute_anchors(data_, true);
  save_now();  // with the slower compressors beside it
  saver_->export_now(config_, trainer_, progress_);
  report_saves();
  log_.event(anchor_metrics(progress_.anchors));
  print_summary();
  log_.event(result());
  refuse_lost_stdout();
  return 0;
}

std::vector<report::Metric> Run::result() const {
  return {{"event", std::string("end")},
          {"step", progress_.step},
          {"bpb", progress_.last_bpb},
          {"best", progress_.best_bpb},
          {"elapsed", progress_.elapsed}};
}

void Run::refuse_lost_stdout() const {
  if (log_.stdout_error() != 0) throw base::Error(fmt::format("cannot write to stdout: {}", std::strerror(log_.stdout_error())));
}

void Run::count_skipped(SkipCounter& skips) {
  ++progress_.skipped;
  log_.event({{"event", std::string("skipped")}, {"step", progress_.step}, {"skipped", progress_.skipped}});
  if (!skips.add(progress_.step, pace_->steps_since_log())) return;
  settle_saves();
  throw base::Error(fmt::format(
      "more than {} of the last steps had a loss or a gradient that is not finite; stopped at step {}. The checkpoint of step {} "
      "is intact: start another run with a lower --lr",
      kMostSkipped, progress_.step, saver_->saved_step()));
}

// A broken pipe comes as a signal.
void Run::check_stdout() {
  if (log_.stdout_error() == 0 || stop_signal() != 0 || progress_.finished()) return;
  save_now();
  throw base::Error(fmt::format("cannot write to stdout: {}; stopped after step {}, {} resumes", std::strerror(log_.stdout_error()),
                                progress_.step, what_resumes()));
}

std::string Run::what_resumes() const { return request_.extend ? resume_command(directory_) : "the same command"; }

void Run::print_summary() const {
  std::istringstream lines(summary(directory_, config_, progress_));
  for (std::string line; std::getline(lines, line);) base::log_line(line);
}

void Run::latch_decay() {
  if (!pace_->latch_decay(progress_)) return;
  log_.event({{"event", std::string("decay")}, {"step", progress_.step}, {"steps", progress_.schedule.decay_steps}});
  base::log_line(fmt::format("decay: the learning rate falls over the last {} steps", progress_.schedule.decay_steps));
}

// The state before the decay, from which --extend goes on.
void Run::keep_stable() {
  if (progress_.step == progress_.schedule.decay_start && trainer_.finite()) saver_->stable(config_, trainer_, progress_);
}

void Run::after_step(const StepResult& result, const optim::Rates& rates) {
  if (!result.stats.empty()) stats_ = result.stats;
  if (pace_->log_due(progress_)) {
    log_.step_line(progress_, window_, result, rates, {saver_->failed(), saver_->stalled()});
    window_ = {};
    pace_->logged(progress_);
  } else {
    log_.progress_bar(progress_, config_.train.time_limit, pace_->median_step_seconds(), result.nats);
  }
  if (pace_->eval_due(progress_)) evaluate();
  save_wanted_ = save_wanted_ || pace_->checkpoint_due(progress_);
  if (healthy_ && save_wanted_) save();
}

// A signal cuts it short: nothing of it counts, and it comes first when the run goes on.
void Run::evaluate() {
  const auto start = Clock::now();
  progress_.eval_pending = true;
  evaluate::BpbOptions options;
  options.row = config_.train.seq_len;
  options.compute = compute_of(config_.train.compute);
  options.stop = [] { return stop_signal() != 0; };
  const auto result = evaluate::bits_per_byte(config_.model, trainer_.parameters(), data_.window, options);
  if (result.stopped) return;
  std::vector<evaluate::DepthPoint> depths;
  if (config_.train.eval_depths) {
    depths = evaluate::depth_curve(config_.model, trainer_.parameters(), data_.window, options);
    if (depths.empty()) return;
  }
  progress_.eval_pending = false;
  progress_.last_bpb = result.bpb;
  progress_.last_eval_step = progress_.step;
  progress_.window = static_cast<std::int64_t>(data_.window.size());
  settle_saves();
  if (result.bpb < progress_.best_bpb) {
    best_before_ = {progress_.best_bpb, progress_.best_step};
    progress_.best_bpb = result.bpb;
    progress_.best_step = progress_.step;
    saver_->best(config_, trainer_, progress_);
  }
  const double seconds = seconds_since(start);
  log_.eval_line(progress_, result, depths, stats_, seconds);
  pace_->evaluated(progress_, seconds);
}

// On a cadence: training goes on whether it succeeds or not.
void Run::save() {
  save_wanted_ = false;
  pace_->saved(progress_);
  if (!trainer_.finite()) {
    base::log_line(fmt::format("not saved at step {}: its weights are not finite; the checkpoint before stays", progress_.step));
    return;
  }
  settle_saves();
  saver_->checkpoint(config_, trainer_, progress_);
}

// Where the run cannot go on without it.
void Run::save_now() {
  std::string problem = "its weights are not finite";
  if (trainer_.finite()) {
    settle_saves();
    saver_->checkpoint_now(config_, trainer_, progress_);
    problem = report_saves("the run stops");
  }
  if (problem.empty()) return;
  const std::string kept = saver_->saved_step() < 0 ? "" : fmt::format("; the checkpoint of step {} stays", saver_->saved_step());
  throw base::Error(fmt::format("the run could not be saved at step {}: {}{}", progress_.step, problem, kept));
}

// No save is in progress afterwards, and what became of them is known; that may change what is the best.
void Run::settle_saves() {
  saver_->finish();
  report_saves();
}

// Says which saves failed since the last call; the failure of the newest checkpoint, if it did.
std::string Run::report_saves(std::string_view consequence) {
  std::string problem;
  for (const auto& outcome : saver_->outcomes()) {
    const bool checkpoint = outcome.file == directory_.checkpoint().filename();
    if (checkpoint) problem = outcome.error;
    if (outcome.error.empty()) continue;
    base::log_line(fmt::format("WARNING: {} of step {} was not saved: {}; {}", outcome.file, outcome.step, outcome.error, consequence));
    log_.event({{"event", std::string("save_failed")}, {"file", outcome.file}, {"step", outcome.step}, {"error", outcome.error}});
    if (checkpoint && pace_) pace_->save_failed(progress_);
    if (outcome.file == directory_.best().filename())
      std::tie(progress_.best_bpb, progress_.best_step) = std::tie(best_before_.bpb, best_before_.step);
  }
  return problem;
}

void Run::check_orthonormality() {
  const double error = trainer_.optimizer().max_ortho();
  log_.event({{"event", std::string("orthonormality")}, {"step", progress_.step}, {"max_ortho", error}});
  if (error > kOrthonormalLimit && progress_.latched_step < 0) {
    progress_.latched_step = progress_.step;
    base::log_line(fmt::format("spectral factors are {:.1e} from orthonormal (limit {:.0e})", error, kOrthonormalLimit));
  }
}

}  // namespace dormouse::train
