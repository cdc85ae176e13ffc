// A model as it leaves the machine: .dmexp, safetensors or GGUF; and the .dmexp as decoding reads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "format/dmexp.h"
#include "network/dormouse/model_file.h"
#include "network/dormouse/parameters.h"

namespace dormouse::network {

// Where the weights come from, for the header.
struct Provenance {
  std::string source;  // file name, without directories
  std::int64_t step = 0;
  std::optional<double> bpb;  // on held-out text of `window` bytes
  std::optional<std::int64_t> window;
};
// Of a model as loaded; BPB and window where its run noted them for exactly this state.
Provenance provenance_of(const Model& model);

// How a parameter is stored under --dtype `dtype` (docs/formats/dmexp.md).
struct Recipe {
  format::Storage storage;
  format::Scales axis;
};
Recipe recipe_of(const tensor::Parameter& parameter, std::string_view dtype);

// dtype: f32, f16, bf16, int8, ternary. base::Error naming the tensor when a value does not fit; ternary without `force`: when a spectral
// factor is not ternary.
format::DmexpImage export_image(Parameters& parameters, const ModelConfig& config, const Provenance& provenance, const std::string& dtype,
                                bool force = false);

// Interchange, parameters by their public names (docs/formats/dmexp.md, "Tensors"). The bytes written.
// dtype: f32, f16, bf16.
std::uint64_t write_interchange(const std::filesystem::path& path, Parameters& parameters, const ModelConfig& config,
                                const Provenance& provenance, const std::string& dtype);
// dtype: bf16, ternary (TQ2_0, whose f16 scales are not those of a .dmexp); factors are stored transposed, [k,in] and [k,out].
std::uint64_t write_model_gguf(const std::filesystem::path& path, Parameters& parameters, const ModelConfig& config,
                               const Provenance& provenance, const std::string& dtype, bool force = false);

// An export ready to decode from: config and narrow values, in the order of for_each unless another program wrote it.
struct Export {
  std::filesystem::path path;
  ModelConfig config;
  format::DmexpHeader header;
  format::DmexpFile::Contents contents;

  const format::Packed& operator[](const std::string& name) const;  // a tensor of the config
};
// Every tensor of its config exactly once with the same dims, in order, and no other; nothing larger than the file is allocated. Only an
// export, or a run directory, whose model.dmexp is read: base::Error with the command that works otherwise, also where model.dmexp is
// missing, of another model, or older than the file it was made of.
Export load_export(const std::filesystem::path& run_or_file);
// The model it stands for, in f32.
Model widened(const Export& file);

// The config of an export whose tensors are those of that config; base::Error otherwise.
ModelConfig check_export(const format::DmexpFile& file);

}  // namespace dormouse::network
