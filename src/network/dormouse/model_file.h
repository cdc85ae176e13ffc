// A model in a safetensors file: tensors "model.<parameter>", its config in the metadata.
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

// Fills declared parameters: every name exactly once with the same dims and f32, no other "model.*" name, every value finite. base::Error
// of one line naming file and tensor otherwise.
void read_parameters(const format::SafetensorsFile& file, std::string_view where, Parameters& parameters, const ModelConfig& config);

// The [model] section of a file's "config" metadata; unknown equations are refused.
ModelConfig read_model_config(const format::SafetensorsFile& file, std::string_view where);

// A run directory (its checkpoint.safetensors) or a checkpoint or weights file.
std::filesystem::path model_path(const std::filesystem::path& run_or_file);
Model load_model(const std::filesystem::path& run_or_file);

}  // namespace dormouse::network
