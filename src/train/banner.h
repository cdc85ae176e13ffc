// What a person reads at the start and the end of a run.
#pragma once

#include <cstdint>
#include <string>

#include "train/checkpoint.h"
#include "train/directory.h"
#include "train/plan.h"
#include "train/run_data.h"
#include "train/step.h"

namespace dormouse::train {

void print_banner(const RunDirectory& directory, const RunConfig& config, const RunData& data, const MemoryPlan& plan, Trainer& trainer,
                  std::uint64_t windows_in_epoch);
// Of a new run: what was measured to make it better or faster on a text and a machine like these.
void print_hints(const RunConfig& config, std::uint64_t text_bytes);
// Into the log file only: command, program, machine, data identity, routing of every parameter, config.
void log_preamble(const Request& request, const RunConfig& config, Trainer& trainer);

// Two lines: the model and the text of a run.
std::string description(const RunConfig& config);
// How far a run came: steps, time, BPB beside the anchors, where the files are, what to type next.
std::string summary(const RunDirectory& directory, const RunConfig& config, const Progress& progress);

}  // namespace dormouse::train
