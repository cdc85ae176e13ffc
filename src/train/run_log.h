// What a run writes for people and for programs: log lines, metrics.jsonl, status.txt.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "evaluate/bpb.h"
#include "report/metrics.h"
#include "train/checkpoint.h"
#include "train/step.h"

namespace dormouse::train {

// Sums over the steps since the last log line.
struct LogWindow {
  std::int64_t steps = 0, bytes = 0, skipped = 0;
  double nats = 0, rec_nats = 0, seconds = 0;
  void add(const StepResult& result, std::int64_t step_bytes, double step_seconds);
};

class RunLog {
 public:
  // Opens log.txt and metrics.jsonl in the run directory (append). json: every metrics object also goes to stdout.
  RunLog(const std::filesystem::path& directory, bool json);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // "step 120 ce 1.812 bpb 2.614 best 2.701 lr 3.00e-03 gnorm 1.21 24,310 bytes/s 84 ms/step" and the counters.
  void step_line(const Progress& progress, const LogWindow& window, const StepResult& last, double lr);
  // "EVAL bpb 2.31 rec 2.40 over 100,000 B (fixed window)", gates and |u| per iteration, depth curve.
  void eval_line(const Progress& progress, const evaluate::Bpb& result, const std::vector<evaluate::DepthPoint>& depths,
                 const std::vector<network::IterationStats>& stats, double seconds);
  void event(std::vector<report::Metric> metrics);
  void progress_bar(const Progress& progress, double limit_seconds, double seconds_per_step, double nats);

 private:
  std::filesystem::path directory_;
  report::MetricsWriter metrics_;
  bool json_;
  std::chrono::steady_clock::time_point status_written_, bar_drawn_;
};

}  // namespace dormouse::train
