// What a run writes for people and for programs: log lines, metrics.jsonl, status.txt.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/bpb.h"
#include "report/events.h"
#include "report/metrics.h"
#include "train/checkpoint.h"
#include "train/step.h"

namespace dormouse::train {

// Sums over the steps since the last log line.
struct LogWindow {
  std::int64_t steps = 0, bytes = 0;
  double nats = 0, rec_nats = 0, seconds = 0;
  void add(const StepResult& result, std::int64_t step_bytes, double step_seconds);
};

// Saves of this process that failed, and that training had to wait for.
struct SaveCounts {
  std::int64_t failed = 0, stalled = 0;
};

// A file that can no longer be written does not end a run: it says so once, counts the lines it lost, and tries again with each.
class RunLog {
 public:
  // Opens log.txt and metrics.jsonl in the run directory (append). json: every metrics object also goes to stdout. tensorboard: its
  // numbers also go to an event file of this start.
  RunLog(const std::filesystem::path& directory, bool json, bool tensorboard);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // "step 120 ce 1.812 bpb 2.614 best 2.701 lr 3.00e-03 gnorm 1.21 24,310 bytes/s 84 ms/step" and the counters.
  void step_line(const Progress& progress, const LogWindow& window, const StepResult& last, const optim::Rates& rates,
                 const SaveCounts& saves);
  // "EVAL step 120 bpb 2.3100 rec 2.4000 over 100,000 B (fixed window)", gates and |u| per iteration, depth curve.
  void eval_line(const Progress& progress, const evaluate::Bpb& result, const std::vector<evaluate::DepthPoint>& depths,
                 const std::vector<network::IterationStats>& stats, double seconds);
  void event(const std::vector<report::Metric>& metrics);
  void print(const std::vector<report::Metric>& metrics);  // on stdout alone, with json: what metrics.jsonl holds already
  int stdout_error() const { return stdout_error_; }       // errno of the first metrics object that stdout did not take; 0: none
  void progress_bar(const Progress& progress, double limit_seconds, double seconds_per_step, double nats);

 private:
  void lost(const std::string& what);
  void open_metrics();
  void write_status(const std::string& line, bool at_once);  // else once a second at most

  std::filesystem::path directory_;
  std::optional<report::MetricsWriter> metrics_;
  std::optional<report::EventWriter> events_;
  bool json_, tensorboard_;
  int stdout_error_ = 0;
  std::int64_t lost_ = 0;  // lines and states that were not written
  std::chrono::steady_clock::time_point status_written_, bar_drawn_;
};

}  // namespace dormouse::train
