// A model in a file: of a run (safetensors, tensors "model.<parameter>"), for other programs (safetensors, tensors "<parameter>") or an
// export (network/dormouse/export.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "format/safetensors.h"
#include "network/dormouse/parameters.h"

namespace dormouse::network {

struct Model {
  ModelConfig config;
  Parameters parameters;
  std::filesystem::path path;  // the file it came from
  std::int64_t step = 0;       // the next step of its run
};

// "model.<name>" for every parameter, in for_each order; the tensors share storage with the parameters.
std::vector<format::NamedTensor> model_tensors(Parameters& parameters, const ModelConfig& config);

// Fills parameters, which may be shapes only: every name exactly once with the same dims and f32, no other "model.*" name, every value
// finite. base::Error of one line naming file and tensor otherwise. A file of dormouse.kind "model" names them without "model.", has
// nothing else, and may hold f16 and bf16.
void read_parameters(const format::SafetensorsFile& file, std::string_view where, Parameters& parameters, const ModelConfig& config);

// The [model] section of a file's "config" metadata; unknown equations are refused.
ModelConfig read_model_config(const format::SafetensorsFile& file, std::string_view where);
// Its "step" metadata; 0 when there is none.
std::int64_t read_step(const format::SafetensorsFile& file);

// A run directory (its checkpoint.safetensors) or any file.
std::filesystem::path model_path(const std::filesystem::path& run_or_file);
// A run directory, checkpoint, weights or safetensors model, or an export, whose values are widened.
Model load_model(const std::filesystem::path& run_or_file);

}  // namespace dormouse::network
