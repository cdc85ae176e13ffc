#include "network/dormouse/model_file.h"

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/half.h"
#include "config/toml.h"
#include "format/kind.h"
#include "network/dormouse/export.h"

namespace dormouse::network {
namespace {

constexpr std::string_view kPrefix = "model.";

[[noreturn]] void refuse(std::string_view where, const std::string& what) { throw base::Error(base::escape(where) + ": " + what); }

void require_finite(const tensor::Tensor& value, const std::string& name, std::string_view where) {
  const float* x = value.data<float>();
  for (std::int64_t i = 0; i < value.size(); ++i) {
    if (!std::isfinite(x[i])) {
      throw base::Damaged(base::escape(where) + ": tensor " + name + " holds " + (std::isnan(x[i]) ? "NaN" : "an infinity") +
                          " at element " + std::to_string(i) +
                          "; the file is damaged or the run diverged: use an earlier checkpoint (best.safetensors of the run)");
    }
  }
}

bool is_interchange(const format::SafetensorsFile& file) {
  const auto kind = file.metadata().find("dormouse.kind");
  return kind != file.metadata().end() && kind->second == "model";
}

tensor::Tensor widened(const tensor::Tensor& narrow) {
  if (narrow.dtype() == tensor::Dtype::f32) return narrow;
  const auto* words = reinterpret_cast<const std::uint16_t*>(narrow.bytes());
  const auto wide = tensor::Tensor::empty(narrow.shape(), tensor::Dtype::f32);
  float* out = wide.data<float>();
  const bool bf16 = narrow.dtype() == tensor::Dtype::bf16;
  for (std::int64_t i = 0; i < narrow.size(); ++i) out[i] = bf16 ? base::f32_from_bf16(words[i]) : base::f32_from_f16(words[i]);
  return wide;
}

}  // namespace

std::vector<format::NamedTensor> model_tensors(Parameters& parameters, const ModelConfig& config) {
  std::vector<format::NamedTensor> tensors;
  for_each(parameters, config, [&](Parameter& parameter) { tensors.push_back({std::string(kPrefix) + parameter.name, parameter.value}); });
  return tensors;
}

void read_parameters(const format::SafetensorsFile& file, std::string_view where, Parameters& parameters, const ModelConfig& config) {
  const bool interchange = is_interchange(file);
  const std::string_view prefix = interchange ? "" : kPrefix;
  std::set<std::string> wanted;
  for_each(parameters, config, [&](Parameter& parameter) {
    const std::string name = std::string(prefix) + parameter.name;
    wanted.insert(name);
    const auto* entry = file.find(name);
    if (entry == nullptr) refuse(where, "tensor " + name + " is missing; its config asks for it");
    const std::string wanted_dims = parameter.value.shape().text(), dims = entry->dims_text();
    if (dims != wanted_dims) {
      refuse(where, "tensor " + name + " is " + dims + " but the config says " + wanted_dims + "; it belongs to another preset or config");
    }
    const bool half = entry->dtype == tensor::Dtype::bf16 || entry->dtype == tensor::Dtype::f16;
    if (entry->dtype != tensor::Dtype::f32 && !(interchange && half))
      refuse(where, "tensor " + name + " is " + tensor::name_of(entry->dtype) + ", not f32");
    const tensor::Tensor value = widened(file.read(*entry));
    require_finite(value, name, where);
    if (parameter.value.defined()) {
      parameter.value.copy_from(value);
    } else {
      parameter.value = value;
    }
  });
  for (const auto& entry : file.entries()) {
    if (entry.name.starts_with(prefix) && !wanted.contains(entry.name)) {
      refuse(where, "tensor " + base::escape(entry.name) + " does not belong to this config; it belongs to another preset or config");
    }
  }
}

ModelConfig read_model_config(const format::SafetensorsFile& file, std::string_view where) {
  const auto& metadata = file.metadata();
  const auto kind = metadata.find("dormouse.kind");
  const auto text = metadata.find("config");
  if (kind == metadata.end() || text == metadata.end()) {
    refuse(where, "a safetensors file without a dormouse config in its metadata; give a run directory or a checkpoint of `dormouse train`");
  }
  ModelConfig config;
  const auto sections = config::parse_toml(text->second, std::string(where) + " (config)");
  const auto model = sections.find("model");
  if (model == sections.end()) refuse(where, "its config has no [model] section");
  config::read_saved_table(config, model->second, where);
  validate(config);
  return config;
}

std::int64_t read_step(const format::SafetensorsFile& file) {
  const auto step = file.metadata().find("step");
  return step == file.metadata().end() ? 0 : std::strtoll(step->second.c_str(), nullptr, 10);
}

std::filesystem::path model_path(const std::filesystem::path& run_or_file) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(run_or_file, ignored)) return run_or_file;
  const auto checkpoint = run_or_file / "checkpoint.safetensors";
  if (!std::filesystem::exists(checkpoint, ignored)) {
    refuse(run_or_file.string(), "a directory without checkpoint.safetensors; give a run directory that `dormouse train` wrote");
  }
  return checkpoint;
}

Model load_model(const std::filesystem::path& run_or_file) {
  Model model;
  model.path = model_path(run_or_file);
  const std::string where = model.path.string();
  std::error_code ignored;
  if (std::filesystem::is_regular_file(model.path, ignored) && format::recognise_file(model.path).kind == format::Kind::dmexp)
    return widened(load_export(model.path));
  const format::SafetensorsFile file(model.path);
  model.config = read_model_config(file, where);
  model.parameters = declare_shapes(model.config);
  read_parameters(file, where, model.parameters, model.config);
  model.step = read_step(file);
  return model;
}

}  // namespace dormouse::network
