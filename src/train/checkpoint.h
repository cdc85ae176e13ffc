// The state of a run in one safetensors file: weights, optimizer, and where it stands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "data/byte_stream.h"
#include "format/safetensors.h"
#include "optim/schedule.h"
#include "train/step.h"

namespace dormouse::train {

// Where a run stands between two steps.
struct Progress {
  std::int64_t step = 0;  // the NEXT step
  data::ByteStream::Position stream;
  optim::Schedule schedule;
  double elapsed = 0;                                         // seconds of training, over resumes
  double best_bpb = std::numeric_limits<double>::infinity();  // held-out
  std::int64_t best_step = -1;
  double last_bpb = std::numeric_limits<double>::infinity();
  std::int64_t last_eval_step = -1;
  std::int64_t window = 0;         // bytes of the held-out text it was measured on; 0: not known
  std::int64_t skipped = 0;        // steps the firewall made no-ops
  std::int64_t latched_step = -1;  // first step whose factors were not orthonormal; -1: never
  bool eval_pending = false;       // an evaluation of this step was due and did not end: it comes first when the run goes on
  std::string anchors;             // "name bpb" lines, computed at the first start

  bool finished() const { return schedule.finished(step); }
};

// What goes into a file; the tensors share storage with the trainer's.
struct SavedState {
  std::vector<format::NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};
// checkpoint.safetensors, stable.safetensors: model.*, optimizer.*, and Progress and the config in the metadata.
SavedState checkpoint_state(const RunConfig& config, Trainer& trainer, const Progress& progress);
// model.dmexp: the model.* tensors of `state` in bf16, taken from `source`.
void write_export(const std::filesystem::path& path, const std::filesystem::path& source, const RunConfig& config, const Progress& progress,
                  const SavedState& state);
// best.safetensors: model.* and the same metadata.
SavedState weights_state(const RunConfig& config, Trainer& trainer, const Progress& progress);

// Fills trainer and returns the progress; the lengths in config become those of the checkpoint. Bytes that are not what was written, a
// value that is not finite: base::Damaged. Another run's file, a newer program's, another config, shape or tensor: base::Error.
Progress load_checkpoint(const std::filesystem::path& path, RunConfig& config, Trainer& trainer);

// Where the run of a checkpoint stood, from its metadata. A key missing or not as written: base::Error. A value that
// no run has: base::Damaged.
Progress read_progress(const format::SafetensorsFile& file, const std::string& where);

// "epoch 3 generation 0 window 118" -> Position.
data::ByteStream::Position parse_position(const std::string& text, const std::string& where);

}  // namespace dormouse::train
