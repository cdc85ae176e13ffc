#include "network/dormouse/weights.h"

#include <bit>
#include <map>
#include <string>

#include "base/bytes.h"
#include "base/hash.h"
#include "config/toml.h"

namespace dormouse::network {
namespace {

Weights read(const ModelConfig& config, const layer::WeightSource& source) {
  Weights w;
  w.config = config;
  const std::int64_t d = config.d_model;
  w.embedding = layer::LookupTable(source, "embedding.weight");
  w.controller_u = layer::matrix(source, "loop.controller.weight", 0, d);
  w.controller_h0 = layer::matrix(source, "loop.controller.weight", d, d);
  w.iteration_embedding = layer::vector(source, "loop.iteration_embedding");
  w.loop_norm = layer::vector(source, "loop.norm.weight");
  w.residual_scale = layer::vector(source, "loop.residual_scale");
  w.memory_dense = layer::matrix(source, "loop.memory_dense.weight");
  if (config.use_kda) w.attention = layer::read_kda(source, "loop.attention");
  if (config.use_engram) w.engram = layer::read_engram(source, "loop.engram");
  for (std::int64_t e = 0; e < config.n_experts; ++e) w.experts.push_back(layer::read_expert(source, "loop.experts." + std::to_string(e)));
  w.readout = layer::read_spectral(source, "loop.readout");
  w.final_norm = layer::vector(source, "norm.weight");
  w.head = layer::read_spectral(source, "head");
  return w;
}

std::uint32_t checksum(const ModelConfig& config, const layer::WeightSource& source) {
  static_assert(std::endian::native == std::endian::little, "checksums are of little-endian values");
  std::uint32_t crc = base::crc32(base::bytes_of(config::write_table(config)));
  Parameters shapes = declare_shapes(config);
  for_each(shapes, config, [&](Parameter& p) {
    const std::vector<float> values = layer::vector(source, p.name);
    crc = base::crc32({reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(float)}, crc);
  });
  return crc;
}

layer::WeightSource source_of(const Export& file) {
  return [&file](const std::string& name) { return file[name]; };
}

layer::WeightSource source_of(Parameters& parameters, const ModelConfig& config) {
  std::map<std::string, format::Packed> tensors;
  for_each(parameters, config, [&](Parameter& p) {
    const auto dims = p.value.shape().dims();
    format::Packed& packed = tensors[p.name];
    packed.name = p.name;
    packed.shape.dims.assign(dims.begin(), dims.end());
    packed.codes = {reinterpret_cast<const std::uint8_t*>(p.value.data<float>()), static_cast<std::size_t>(p.value.size()) * sizeof(float)};
  });
  return [tensors = std::move(tensors)](const std::string& name) { return tensors.at(name); };
}

}  // namespace

Weights read_weights(const Export& file) {
  Weights w = read(file.config, source_of(file));
  w.path = file.path;
  w.step = file.header.step;
  return w;
}

Weights read_weights(Parameters& parameters, const ModelConfig& config) { return read(config, source_of(parameters, config)); }

std::uint32_t weights_crc(const Export& file) { return checksum(file.config, source_of(file)); }

std::uint32_t weights_crc(Parameters& parameters, const ModelConfig& config) { return checksum(config, source_of(parameters, config)); }

std::vector<const ops::NarrowMatrix*> loop_matrices(const Weights& w) {
  std::vector<const ops::NarrowMatrix*> out = {&w.controller_u, &w.memory_dense};
  const auto add = [&](const ops::NarrowMatrix& m) { out.push_back(&m); };
  if (w.config.use_kda) layer::for_each_matrix(w.attention, add);
  for (const auto& expert : w.experts) layer::for_each_matrix(expert, add);
  return out;
}

std::vector<const ops::NarrowMatrix*> once_matrices(const Weights& w) {
  std::vector<const ops::NarrowMatrix*> out = {&w.controller_h0};
  const auto add = [&](const ops::NarrowMatrix& m) { out.push_back(&m); };
  if (w.config.use_engram) layer::for_each_matrix(w.engram, add);
  layer::for_each_matrix(w.readout, add);
  layer::for_each_matrix(w.head, add);
  return out;
}

}  // namespace dormouse::network
