// Where a run goes on: its newest save that loads.
#pragma once

#include <optional>

#include "train/checkpoint.h"
#include "train/directory.h"

namespace dormouse::train {

struct Resumed {
  Progress progress;
  bool from_previous = false;  // checkpoint.safetensors is gone or damaged, and was put aside
};

// Fills trainer from checkpoint.safetensors or, when that is damaged or missing, from previous.safetensors, and says so. Nothing was saved
// yet: nullopt. Neither loads: base::Error that names both reasons; nothing is changed then.
std::optional<Resumed> load_newest(const RunDirectory& directory, RunConfig& config, Trainer& trainer);

}  // namespace dormouse::train
