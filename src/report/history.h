// What the metrics.jsonl of a run says, read back for plots.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace dormouse::report {

// One logged step or one evaluation. NaN: not there. `earlier`: of a branch that an --extend left behind.
struct HistoryRow {
  double step = 0, bytes = 0, elapsed = 0;                     // updates so far, training bytes so far, seconds of training so far
  double ce = 0, bpb = 0, lr = 0, gnorm = 0, bytes_per_s = 0;  // an evaluation has bpb only
  bool earlier = false;
};

struct HistoryMark {
  double step = 0;
  std::string event;  // "resume" or "extend"
};

struct History {
  std::string name;
  std::vector<HistoryRow> steps, evals;
  std::vector<HistoryMark> marks;
  std::vector<std::pair<std::string, double>> anchors;  // name, BPB on the run's window
  std::int64_t parameters = 0, window_bytes = 0;        // 0: not said
  std::int64_t skipped = 0;                             // steps the firewall made no-ops
  bool ended = false;

  // What could not be drawn.
  std::uint64_t torn_bytes = 0;  // of a last line without its newline: a run in progress, or a kill
  std::int64_t unreadable = 0;   // other lines that are no JSON object
  std::int64_t missing = 0;      // values absent or null
  std::int64_t repeated = 0;     // lines logged again after a resume from an older checkpoint; the later ones count
};

// `run`: a run directory, or its metrics.jsonl. No metrics there, not the metrics of a run, or no step logged yet: base::Error.
History read_history(const std::filesystem::path& run);

}  // namespace dormouse::report
