// The state of a run in one safetensors file: weights, optimizer, and where it stands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "data/byte_stream.h"
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
  std::int64_t skipped = 0;        // steps the firewall made no-ops
  std::int64_t latched_step = -1;  // first step whose factors were not orthonormal; -1: never
  std::string anchors;             // "name bpb" lines, computed at the first start

  bool finished() const { return schedule.finished(step); }
};

// checkpoint.safetensors: model.*, optimizer.*, and Progress and the config in the metadata. Written atomically.
void save_checkpoint(const std::filesystem::path& path, const RunConfig& config, Trainer& trainer, const Progress& progress);
// best.safetensors: model.* and the config.
void save_weights(const std::filesystem::path& path, const RunConfig& config, Trainer& trainer, const Progress& progress);
// Fills trainer and returns the progress. Another run's file, a wrong shape, a non-finite value, a missing or extra tensor: base::Error.
Progress load_checkpoint(const std::filesystem::path& path, const RunConfig& config, Trainer& trainer);

// "epoch 3 generation 0 window 118" -> Position.
data::ByteStream::Position parse_position(const std::string& text, const std::string& where);

}  // namespace dormouse::train
