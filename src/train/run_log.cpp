#include "train/run_log.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <numbers>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/units.h"

namespace dormouse::train {

void LogWindow::add(const StepResult& result, std::int64_t step_bytes, double step_seconds) {
  ++steps;
  bytes += step_bytes;
  seconds += step_seconds;
  nats += result.nats;
  rec_nats += result.rec_nats;
}

RunLog::RunLog(const std::filesystem::path& directory, bool json, bool tensorboard)
    : directory_(directory), json_(json), tensorboard_(tensorboard) {
  base::open_log_file(directory / "log.txt");
  open_metrics();
}

RunLog::~RunLog() {
  base::clear_progress();
  base::close_log_file();
}

void RunLog::lost(const std::string& what) {
  if (lost_++ == 0) base::log_line(fmt::format("WARNING: {}; training goes on, what is lost is counted", what));
}

void RunLog::open_metrics() {
  metrics_.emplace(directory_ / "metrics.jsonl");
  if (const auto bytes = metrics_->mended_bytes(); bytes > 0) {
    base::log_line(fmt::format("metrics.jsonl: its last line, {} bytes, was never finished; what it held is kept, a fresh line begins",
                               base::human_count(bytes)));
  }
}

void RunLog::event(const std::vector<report::Metric>& metrics) {
  try {
    if (!metrics_) open_metrics();
    metrics_->write(metrics);
  } catch (const base::Error& error) {
    metrics_.reset();
    lost(error.what());
  }
  if (tensorboard_) {
    try {
      if (!events_) events_.emplace(directory_);
      events_->write(metrics);
    } catch (const base::Error& error) {
      events_.reset();  // a reader stops at a broken record: the next one opens another file
      lost(error.what());
    }
  }
  print(metrics);
}

void RunLog::print(const std::vector<report::Metric>& metrics) {
  if (!json_ || stdout_error_ != 0) return;
  const std::string line = report::to_json(metrics) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0) stdout_error_ = errno;
}

// Costs an fsync: at most once a second.
void RunLog::write_status(const std::string& line, bool at_once) {
  const auto now = std::chrono::steady_clock::now();
  if (!at_once && now - status_written_ < std::chrono::seconds(1)) return;
  status_written_ = now;
  try {
    base::write_file_atomically(directory_ / "status.txt", line);
  } catch (const base::Error& error) {
    lost(error.what());
  }
}

void RunLog::step_line(const Progress& progress, const LogWindow& window, const StepResult& last, const optim::Rates& rates,
                       const SaveCounts& saves) {
  const auto n = static_cast<double>(window.steps);
  const double ce = window.nats / n, rec = window.rec_nats / n;
  const double rate = window.seconds > 0 ? static_cast<double>(window.bytes) / window.seconds : 0;
  const double ms = 1000 * window.seconds / n;
  std::string line = fmt::format("step {} ce {:.4f} bpb {:.4f} best {} lr {:.2e} gnorm {:.3g} {} bytes/s {:.1f} ms/step", progress.step, ce,
                                 ce / std::numbers::ln2, std::isfinite(progress.best_bpb) ? fmt::format("{:.4f}", progress.best_bpb) : "-",
                                 rates.all, last.report.clip_norm, base::human_count(static_cast<std::uint64_t>(rate)), ms);
  if (last.report.zero_gradients > 0) line += fmt::format(" zero-gradients {}", last.report.zero_gradients);
  if (progress.skipped > 0) line += fmt::format(" skipped {}", progress.skipped);
  if (saves.failed > 0) line += fmt::format(" unsaved {}", saves.failed);
  if (saves.stalled > 0) line += fmt::format(" stalled {}", saves.stalled);
  if (lost_ > 0) line += fmt::format(" lost {}", lost_);
  base::log_line(line);

  std::vector<report::Metric> metrics = {{"event", std::string("step")},
                                         {"step", progress.step},
                                         {"ce", ce},
                                         {"bpb", ce / std::numbers::ln2},
                                         {"rec_ce", rec},
                                         {"best", progress.best_bpb},
                                         {"lr", rates.all},
                                         {"lr_table", rates.table},
                                         {"gnorm", last.report.clip_norm},
                                         {"gnorm_all", last.report.grad_norm},
                                         {"bytes_per_s", rate},
                                         {"ms_per_step", ms},
                                         {"skipped", progress.skipped},
                                         {"zero_gradients", last.report.zero_gradients},
                                         {"saves_failed", saves.failed},
                                         {"saves_stalled", saves.stalled},
                                         {"elapsed", progress.elapsed},
                                         {"epoch", static_cast<std::int64_t>(progress.stream.epoch)},
                                         {"window", static_cast<std::int64_t>(progress.stream.index)},
                                         {"private_bytes", static_cast<std::int64_t>(base::private_memory())}};
  for (std::size_t i = 0; i < last.stats.size(); ++i) {
    const auto& s = last.stats[i];
    const std::string at = "_" + std::to_string(i + 1);
    metrics.insert(metrics.end(), {{"u_rms" + at, s.u_rms},
                                   {"gate_attention" + at, s.attention_gate},
                                   {"gate_memory" + at, s.memory_gate},
                                   {"gate_ffn" + at, s.ffn_gate},
                                   {"saturated_attention" + at, s.attention_saturated},
                                   {"saturated_memory" + at, s.memory_saturated},
                                   {"saturated_ffn" + at, s.ffn_saturated}});
  }
  event(metrics);
  const std::string judged =
      progress.last_eval_step > 0 ? fmt::format(", held-out bpb {:.4f} at step {}", progress.last_bpb, progress.last_eval_step) : "";
  write_status(fmt::format("step {} ce {:.3f}{}\n", progress.step, ce, judged), false);
}

void RunLog::eval_line(const Progress& progress, const evaluate::Bpb& result, const std::vector<evaluate::DepthPoint>& depths,
                       const std::vector<network::IterationStats>& stats, double seconds) {
  base::log_line(fmt::format("EVAL step {} bpb {:.4f} rec {:.4f} over {} B (fixed window){}", progress.step, result.bpb, result.rec_bpb,
                             base::human_count(static_cast<std::uint64_t>(result.bytes)),
                             progress.best_step == progress.step ? " best so far" : ""));
  write_status(fmt::format("step {} held-out bpb {:.4f}, best {:.4f} at step {}\n", progress.step, result.bpb, progress.best_bpb,
                           progress.best_step),
               true);
  std::vector<report::Metric> metrics = {{"event", std::string("eval")}, {"step", progress.step},   {"bpb", result.bpb},
                                         {"rec_bpb", result.rec_bpb},    {"bytes", result.bytes},   {"scored", result.scored},
                                         {"best", progress.best_bpb},    {"eval_seconds", seconds}, {"elapsed", progress.elapsed}};
  std::string curve;
  for (const auto& point : depths) {
    curve += fmt::format("  depth {} {:.4f}", point.depth, point.bpb);
    metrics.emplace_back("bpb_depth_" + std::to_string(point.depth), point.bpb);
  }
  if (!curve.empty()) base::log_line("    " + curve);
  std::string gates;
  for (std::size_t i = 0; i < stats.size(); ++i) {
    const auto& s = stats[i];
    gates += fmt::format("  {}: |u| {:.2f} attention {:.2f} memory {:.2f} ffn {:.2f} saturated {:.0f}/{:.0f}/{:.0f}%", i + 1, s.u_rms,
                         s.attention_gate, s.memory_gate, s.ffn_gate, 100 * s.attention_saturated, 100 * s.memory_saturated,
                         100 * s.ffn_saturated);
  }
  if (!gates.empty()) base::log_line("     iteration" + gates);
  event(metrics);
}

void RunLog::progress_bar(const Progress& progress, double limit_seconds, double seconds_per_step, double nats) {
  const auto now = std::chrono::steady_clock::now();
  if (!base::stderr_is_terminal() || now - bar_drawn_ < std::chrono::milliseconds(200)) return;
  bar_drawn_ = now;
  const auto& schedule = progress.schedule;
  double fraction = 0, left = 0;
  if (schedule.decay_start >= 0) {
    const auto horizon = static_cast<double>(schedule.decay_start + schedule.decay_steps);
    fraction = horizon > 0 ? static_cast<double>(progress.step) / horizon : 1;
    left = (horizon - static_cast<double>(progress.step)) * seconds_per_step;
  } else if (limit_seconds > 0) {
    fraction = progress.elapsed / limit_seconds;
    left = limit_seconds - progress.elapsed;
  }
  base::show_progress(std::min(1.0, fraction), fmt::format("step {} bpb {:.3f}, {} left", progress.step, nats / std::numbers::ln2,
                                                           base::human_duration(std::max(0.0, left))));
}

}  // namespace dormouse::train
