// A run from its start or resume to its end: steps, cadences, saves.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/byte_stream.h"
#include "train/checkpoint.h"
#include "train/directory.h"
#include "train/feed.h"
#include "train/pace.h"
#include "train/plan.h"
#include "train/run_data.h"
#include "train/run_log.h"
#include "train/saver.h"

namespace dormouse::train {

class Run {
 public:
  // lock: of the directory, held; it and the stream outlive the run.
  Run(const Request& request, bool json, RunDirectory directory, const base::Lock& lock, RunConfig config, RunData data,
      data::ByteStream& stream);

  // The exit code, as train::run.
  int start(const MemoryPlan& plan);

 private:
  bool open();  // false: finished already
  void begin_anew();
  void keep_config();
  void extend();
  int train();
  StepData next_data(Feed& feed);
  void forget_memory();
  void after_step(const StepResult& result, const optim::Rates& rates);
  void count_skipped(SkipCounter& skips);
  void latch_decay();
  void print_summary() const;
  std::string what_resumes() const;
  void check_stdout();
  void keep_stable();
  void evaluate();
  void save();
  void save_now();
  void settle_saves();
  std::string report_saves(std::string_view consequence = "training goes on");
  void check_orthonormality();
  int stopped(int signal);
  int finish();
  std::vector<report::Metric> result() const;
  void refuse_lost_stdout() const;

  const Request& request_;
  RunDirectory directory_;
  const base::Lock& lock_;
  RunConfig config_;
  RunData data_;
  data::ByteStream& stream_;
  RunLog log_;
  Trainer trainer_;
  Progress progress_;
  std::optional<Saver> saver_;
  LogWindow window_;
  std::optional<Pace> pace_;
  std::vector<network::IterationStats> stats_;
  bool healthy_ = true;       // the last step was applied
  bool save_wanted_ = false;  // a save was due at a step that was not
  struct {
    double bpb;
    std::int64_t step;
  } best_before_ = {};  // comes back when best.safetensors could not be written
};

}  // namespace dormouse::train
