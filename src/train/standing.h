// Where a model stands: its BPB beside the anchors of the same window.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/metrics.h"
#include "train/run_data.h"

namespace dormouse::train {

// "name bpb" lines of the anchors of this window, fitted on the training bytes. Bounded in time by the size of the corpus: orders
// above 5 up to 4 MiB, compressors up to 8 MiB, nothing ("") above 32 MiB.
std::string compute_anchors(const RunData& data, bool slow_compressors);

// {"event":"anchors","uniform":8,...}: the BPB of every anchor by name.
std::vector<report::Metric> anchor_metrics(const std::string& anchors);

// One line: the best Kneser-Ney and the compressors.
std::string to_beat(const std::string& anchors, std::int64_t window_bytes);
// Lines (no newline at the end): the model, every anchor by family, and what the model beats.
std::string standing(const std::string& anchors, double bpb);

}  // namespace dormouse::train
