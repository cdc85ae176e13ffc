// What a person reads at the start and the end of a run.
#pragma once

#include <string>

#include "train/checkpoint.h"
#include "train/directory.h"
#include "train/plan.h"
#include "train/run_data.h"
#include "train/step.h"

namespace dormouse::train {

void print_banner(const RunDirectory& directory, const RunConfig& config, const RunData& data, const MemoryPlan& plan, Trainer& trainer,
                  std::uint64_t windows_in_epoch);
// Into the log file only: command, program, machine, data identity, routing of every parameter, config.
void log_preamble(const Request& request, const RunConfig& config, Trainer& trainer);

// "name bpb" lines of the anchors of this window, fitted on the training bytes; bounded in time by the size of the corpus ("" above 32
// MiB).
std::string compute_anchors(const RunData& data);
void print_anchors(const std::string& anchors, std::int64_t window_bytes);

// BPB beside the anchors, where the files are, what to type next.
void print_summary(const RunDirectory& directory, const RunConfig& config, const Progress& progress, std::int64_t window_bytes);

}  // namespace dormouse::train
