#include "network/dormouse/export.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "base/shell.h"
#include "base/version.h"
#include "config/toml.h"
#include "format/gguf.h"
#include "format/kind.h"

namespace dormouse::network {
namespace {

using format::Scales;
using format::Storage;
using tensor::Kind;
using tensor::Role;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw base::Error(base::escape(path.string(), 1024) + ": " + what);
}

std::string source_text(const Provenance& provenance) { return provenance.source + "@step" + std::to_string(provenance.step); }

// The BPB that a run noted for exactly this state: "1.791 at 660".
std::optional<double> noted_bpb(const format::SafetensorsFile& file, std::int64_t step) {
  for (const char* key : {"last_bpb", "best_bpb"}) {
    const auto found = file.metadata().find(key);
    if (found == file.metadata().end()) continue;
    const std::string suffix = " at " + std::to_string(step);
    const double bpb = std::strtod(found->second.c_str(), nullptr);
    if (found->second.ends_with(suffix) && std::isfinite(bpb) && bpb > 0) return bpb;
  }
  return std::nullopt;
}

bool is_factor(const tensor::Parameter& parameter) { return parameter.kind == Kind::factor_in || parameter.kind == Kind::factor_out; }

[[noreturn]] void refuse_inexact(std::int64_t inexact) {
  throw base::Error("the spectral factors of this model are not ternary (" + std::to_string(inexact) +
                    " of their outputs hold other values than 0 and +-a); use --dtype int8, or --force to round them");
}

// [r,c] -> [c,r]
std::vector<float> transposed(const tensor::Tensor& x) {
  const auto rows = static_cast<std::size_t>(x.dim(0)), columns = static_cast<std::size_t>(x.dim(1));
  const float* from = x.data<float>();
  std::vector<float> out(rows * columns);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) out[c * rows + r] = from[r * columns + c];
  }
  return out;
}

std::vector<std::uint8_t> tq2_blocks(std::span<const float> values, std::int64_t& inexact) {
  std::vector<std::uint8_t> out;
  std::vector<std::int8_t> signs(static_cast<std::size_t>(format::kTq2Block));
  for (std::size_t at = 0; at < values.size(); at += signs.size()) {
    bool rounded = false;
    const float scale = format::ternarise(values.data() + at, format::kTq2Block, 1, signs.data(), rounded);
    inexact += rounded ? 1 : 0;
    format::append_tq2_block(scale, signs.data(), out);
  }
  return out;
}

std::vector<std::uint8_t> packed_bytes(std::span<const float> values, Storage storage, const std::string& name) {
  const format::PackedShape shape{{static_cast<std::int64_t>(values.size())}, storage, Scales::none};
  std::vector<std::uint8_t> out(static_cast<std::size_t>(shape.code_bytes()));
  format::PackStats stats;
  const std::int64_t bad = format::pack(shape, values, out, {}, stats);
  if (bad >= 0)
    throw base::Error("tensor " + name + " holds " + std::to_string(values[static_cast<std::size_t>(bad)]) + " at element " +
                      std::to_string(bad) + ", which is not finite as " + std::string(format::name_of(storage)) + "; use --dtype " +
                      (storage == Storage::f16 ? "bf16" : "f32"));
  return out;
}

format::GgufMetadata gguf_metadata(const ModelConfig& config, const Provenance& provenance, const std::string& dtype) {
  const bool ternary = dtype == "ternary";
  format::GgufMetadata out = {
      {"general.architecture", std::string("dormouse")},
      {"general.type", std::string("model")},
      {"general.name", source_text(provenance)},
      {"general.file_type", std::int64_t{ternary ? 37 : 32}},  // ggml: MOSTLY_TQ2_0, MOSTLY_BF16
      {"general.quantization_version", std::int64_t{2}},
      {"dormouse.version", std::string(base::version())},
      {"dormouse.step", provenance.step},
      {"dormouse.factors_transposed", true},
      {"dormouse.config", config::write_table(config)},
  };
  for_each_field(config, [&](const config::Field& field, const auto& value) {
    out.emplace_back("dormouse." + std::string(field.name), config::Value(value));
  });
  return out;
}

// "checkpoint.safetensors@step660" -> name and step; an empty name when it is of another shape.
std::pair<std::string, std::int64_t> parse_source(const std::string& source) {
  const std::size_t at = source.rfind("@step");
  std::int64_t step = 0;
  if (at == std::string::npos) return {};
  const char *begin = source.data() + at + 5, *end = source.data() + source.size();
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || stop != end || begin == end || source.find('/') != std::string::npos) return {};
  return {source.substr(0, at), step};
}

std::filesystem::path export_of_run(const std::filesystem::path& run) {
  std::error_code ignored;
  const auto path = run / "model.dmexp";
  if (std::filesystem::exists(path, ignored)) return path;
  if (std::filesystem::exists(run / "checkpoint.safetensors", ignored))
    refuse(run, "has no model.dmexp; write it: " + base::program() + " export " + base::shell_word(run.string()));
  refuse(run, "a directory without model.dmexp or checkpoint.safetensors; give an export (.dmexp) or a run directory");
}

// The file beside an export that it was made of may have gone on since.
void refuse_stale(const std::filesystem::path& run, const format::DmexpFile& file) {
  const auto& path = file.path();
  const auto [name, step] = parse_source(file.header().source);
  std::error_code ignored;
  if (name.empty() || !std::filesystem::is_regular_file(run / name, ignored)) return;
  const std::string last = base::program() + " export " + base::shell_word(run.string()), best = last + " --best";
  const std::string command = name == "best.safetensors" ? best : last + ", or of the best weights so far: " + best;
  const format::SafetensorsFile source(run / name);
  const std::int64_t now = read_step(source);
  if (now > step)
    refuse(path, "is of step " + std::to_string(step) + ", and " + name + " beside it of step " + std::to_string(now) +
                     "; write it anew: " + command);
  if (read_model_config(source, (run / name).string()) != check_export(file))
    refuse(path, "is of another model than " + name + " beside it; write it anew: " + command);
}

}  // namespace

Provenance provenance_of(const Model& model) {
  Provenance out{.source = model.path.filename().string(), .step = model.step, .bpb = std::nullopt, .window = std::nullopt};
  if (format::recognise_file(model.path).kind != format::Kind::safetensors) return out;
  const format::SafetensorsFile file(model.path);
  const auto window = file.metadata().find("window");
  const auto bpb = noted_bpb(file, model.step);
  if (window == file.metadata().end() || !bpb) return out;
  out.bpb = bpb;
  out.window = std::strtoll(window->second.c_str(), nullptr, 10);
  return out;
}

Recipe recipe_of(const tensor::Parameter& parameter, std::string_view dtype) {
  const auto asked = format::storage_named(dtype);
  if (!asked) throw base::Error("dtype \"" + base::escape(dtype) + "\" is not one of f32, f16, bf16, int8, ternary");
  if (!format::has_scales(*asked)) return {*asked, Scales::none};
  const bool ternary = *asked == Storage::ternary;
  if (parameter.value.rank() != 2 || parameter.role == Role::iteration) return {Storage::f32, Scales::none};
  if (is_factor(parameter)) {
    const Scales axis = parameter.kind == Kind::factor_in ? Scales::columns : Scales::rows;
    if (ternary) return {Storage::ternary, axis};
    if (parameter.role != Role::head) return {Storage::int8, axis};
    return {Storage::bf16, Scales::none};
  }
  if (parameter.role == Role::controller || parameter.role == Role::attention_beta) return {Storage::bf16, Scales::none};
  const bool looked_up = parameter.role == Role::embedding || parameter.kind == Kind::table;
  return {Storage::int8, looked_up ? Scales::rows : Scales::columns};
}

format::DmexpImage export_image(Parameters& parameters, const ModelConfig& config, const Provenance& provenance, const std::string& dtype,
                                bool force) {
  std::vector<format::DmexpTensor> tensors;
  for_each(parameters, config, [&](Parameter& p) {
    const Recipe recipe = recipe_of(p, dtype);
    tensors.push_back({p.name, p.value, recipe.storage, recipe.axis});
  });
  const format::DmexpInfo info{.dtype = dtype,
                               .source = source_text(provenance),
                               .step = provenance.step,
                               .bpb = provenance.bpb,
                               .window = provenance.window,
                               .config = config::write_table(config)};
  format::DmexpImage image = format::narrow(info, tensors);
  if (image.inexact > 0 && !force) refuse_inexact(image.inexact);
  return image;
}

std::uint64_t write_interchange(const std::filesystem::path& path, Parameters& parameters, const ModelConfig& config,
                                const Provenance& provenance, const std::string& dtype) {
  const auto storage = format::storage_named(dtype);
  if (!storage || format::has_scales(*storage))
    throw base::UsageError("--format safetensors holds --dtype bf16, f16 or f32, not " + base::escape(dtype));
  const tensor::Dtype wanted = *storage == Storage::f32   ? tensor::Dtype::f32
                               : *storage == Storage::f16 ? tensor::Dtype::f16
                                                          : tensor::Dtype::bf16;
  std::vector<format::NamedTensor> tensors;
  for_each(parameters, config, [&](Parameter& p) {
    const auto bytes = packed_bytes({p.value.data<float>(), static_cast<std::size_t>(p.value.size())}, *storage, p.name);
    const auto value = tensor::Tensor::empty(p.value.shape(), wanted);
    std::memcpy(value.bytes(), bytes.data(), bytes.size());
    tensors.push_back({p.name, value});
  });
  format::write_safetensors(path, tensors,
                            {{"format", "pt"},
                             {"dormouse.kind", "model"},
                             {"dormouse.version", std::string(base::version())},
                             {"source", source_text(provenance)},
                             {"step", std::to_string(provenance.step)},
                             {"config", "[model]\n" + config::write_table(config)}});
  const format::SafetensorsFile back(path);
  std::uint64_t size = 0;
  for (const auto& entry : back.entries()) {
    (void)back.read(entry);  // its checksum
    size = std::max(size, entry.end);
  }
  return size;
}

std::uint64_t write_model_gguf(const std::filesystem::path& path, Parameters& parameters, const ModelConfig& config,
                               const Provenance& provenance, const std::string& dtype, bool force) {
  const bool ternary = dtype == "ternary";
  if (!ternary && dtype != "bf16") throw base::UsageError("--format gguf holds --dtype bf16 or ternary, not " + base::escape(dtype));
  std::vector<format::GgufTensor> tensors;
  std::int64_t inexact = 0;
  for_each(parameters, config, [&](Parameter& p) {
    const auto dims = p.value.shape().dims();
    format::GgufTensor t{.name = p.name, .dims = {dims.begin(), dims.end()}, .type = format::GgufType::f32, .data = {}};
    std::vector<float> values(p.value.data<float>(), p.value.data<float>() + p.value.size());
    if (is_factor(p)) {
      values = transposed(p.value);
      std::reverse(t.dims.begin(), t.dims.end());
      t.type = ternary ? format::GgufType::tq2_0 : format::GgufType::bf16;
    } else if (p.value.rank() == 2) {
      t.type = format::GgufType::bf16;
    }
    (void)format::gguf_bytes(p.name, t.dims, t.type);
    if (t.type == format::GgufType::tq2_0) {
      t.data = tq2_blocks(values, inexact);
    } else {
      t.data = packed_bytes(values, t.type == format::GgufType::f32 ? Storage::f32 : Storage::bf16, p.name);
    }
    tensors.push_back(std::move(t));
  });
  if (inexact > 0 && !force) refuse_inexact(inexact);
  return format::write_gguf(path, gguf_metadata(config, provenance, dtype), tensors);
}

const format::Packed& Export::operator[](const std::string& name) const {
  for (const auto& packed : contents.tensors) {
    if (packed.name == name) return packed;
  }
  throw base::Error(base::escape(path.string(), 1024) + ": tensor " + name + " is not of its config");
}

ModelConfig check_export(const format::DmexpFile& file) {
  const std::string where = file.path().string();
  const auto sections = config::parse_toml(file.header().config, where + " (config)");
  const auto top = sections.find("");
  if (top == sections.end() || sections.size() != 1) refuse(where, "its config is not the keys of a model");
  ModelConfig config;
  try {
    config::read_saved_table(config, top->second, where);
    validate(config);
  } catch (const base::Error& error) {
    const std::string what = error.what();
    if (what.find(where) != std::string::npos) throw;
    refuse(where, what);
  }

  const auto& entries = file.header().tensors;
  std::map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < entries.size(); ++i) place[entries[i].name] = i;
  Parameters shapes = declare_shapes(config);
  std::size_t index = 0;
  for_each(shapes, config, [&](Parameter& p) {
    const auto found = place.find(p.name);
    if (found == place.end()) refuse(where, "tensor " + p.name + " is missing; its config asks for it");
    const auto span = p.value.shape().dims();
    const std::vector<std::int64_t> dims(span.begin(), span.end());
    const auto& entry = entries[found->second];
    if (entry.shape.dims != dims)
      refuse(where, "tensor " + p.name + " is " + config::to_toml(config::Value(entry.shape.dims)) + " but its config says " +
                        config::to_toml(config::Value(dims)) + "; one of them was changed");
    if (file.header().has_checksum && found->second != index)
      refuse(where, "tensor " + p.name + " stands at place " + std::to_string(found->second) + ", not " + std::to_string(index) +
                        ": the order of its tensors was changed");
    ++index;
    place.erase(found);
  });
  if (!place.empty()) refuse(where, "tensor " + base::escape(place.begin()->first, 80) + " does not belong to its config");
  return config;
}

Export load_export(const std::filesystem::path& run_or_file) {
  std::error_code ignored;
  const bool is_run = std::filesystem::is_directory(run_or_file, ignored);
  Export out;
  out.path = is_run ? export_of_run(run_or_file) : run_or_file;
  const format::DmexpFile file(out.path);
  if (is_run) refuse_stale(run_or_file, file);
  out.config = check_export(file);
  out.header = file.header();
  out.contents = file.read();
  return out;
}

Model widened(const Export& file) {
  Model model{.config = file.config, .parameters = declare_shapes(file.config), .path = file.path, .step = file.header.step};
  for_each(model.parameters, model.config, [&](Parameter& p) {
    p.value = tensor::Tensor::empty(p.value.shape(), tensor::Dtype::f32);
    format::widen(file[p.name], {p.value.data<float>(), static_cast<std::size_t>(p.value.size())});
  });
  return model;
}

}  // namespace dormouse::network
