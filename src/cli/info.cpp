#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "base/log.h"
#include "base/shell.h"
#include "base/units.h"
#include "cli/commands.h"
#include "decode/archive.h"
#include "format/gguf.h"
#include "format/kind.h"
#include "format/safetensors.h"
#include "network/dormouse/export.h"
#include "network/dormouse/model_file.h"
#include "optim/optimizer.h"
#include "report/metrics.h"
#include "train/banner.h"
#include "train/checkpoint.h"
#include "train/directory.h"

namespace dormouse::cli {
namespace {

struct Flags {
  std::string file, preset;
  Machine machine;
};

struct Shown {
  std::string text, verdict;  // verdict: of a safetensors file, the lines of the text that judge it
  std::vector<report::Metric> metrics;
};

std::string human(std::int64_t count) { return base::human_count(static_cast<std::uint64_t>(count)); }

int show_preset(const Flags& flags) {
  const auto config = network::preset(flags.preset);
  auto parameters = network::declare_shapes(config);
  const auto list = network::list(parameters, config);
  std::string text = fmt::format("{:<36} {:>16} {:>12}  {:<13} {:<10} {}\n", "parameter", "shape", "values", "role", "kind", "group");
  for (const auto* p : list) {
    text += fmt::format("{:<36} {:>16} {:>12}  {:<13} {:<10} {}\n", p->name, p->value.shape().text(), human(p->value.size()),
                        tensor::name_of(p->role), tensor::name_of(p->kind), optim::name_of(optim::group_of(*p, train::TrainConfig().opt)));
  }
  const std::int64_t total = network::count(parameters, config);
  text += fmt::format("{}: {} tensors, {} parameters, equations {}\n", flags.preset, list.size(), human(total), config.equations);
  const std::vector<report::Metric> metrics = {{"preset", flags.preset},
                                               {"tensors", static_cast<std::int64_t>(list.size())},
                                               {"parameters", total},
                                               {"equations", config.equations}};
  print(flags.machine.json ? report::to_json(metrics) + "\n" : text);
  return 0;
}

std::int64_t count_not_finite(const tensor::Tensor& value) {
  const auto count = [&](auto type, auto bad) {
    const auto* x = reinterpret_cast<const decltype(type)*>(value.bytes());
    return static_cast<std::int64_t>(std::count_if(x, x + value.size(), bad));
  };
  switch (value.dtype()) {
    case tensor::Dtype::f32:
      return count(float{}, [](float x) { return !std::isfinite(x); });
    case tensor::Dtype::f64:
      return count(double{}, [](double x) { return !std::isfinite(x); });
    case tensor::Dtype::bf16:
      return count(std::uint16_t{}, [](std::uint16_t x) { return !std::isfinite(base::f32_from_bf16(x)); });
    case tensor::Dtype::f16:
      return count(std::uint16_t{}, [](std::uint16_t x) { return !std::isfinite(base::f32_from_f16(x)); });
    default:
      return 0;
  }
}

Shown show_safetensors(const format::SafetensorsFile& file) {
  const auto& metadata = file.metadata();
  Shown out;
  for (const auto& [key, value] : metadata) {
    if (key == "crc32" || key == "config" || key == "anchors") continue;
    out.text += fmt::format("  {:<18} {}\n", base::escape(key), base::escape(value));
    out.metrics.emplace_back(key, value);
  }
  const auto kind = metadata.find("dormouse.kind");
  const bool interchange = kind != metadata.end() && kind->second == "model";
  std::int64_t values = 0, model_values = 0, bytes = 0, not_finite = 0, tensors_not_finite = 0;
  std::string first_not_finite;
  for (const auto& entry : file.entries()) {
    const auto value = file.read(entry);
    values += value.size();
    bytes += static_cast<std::int64_t>(entry.end - entry.begin);
    if (interchange || entry.name.starts_with("model.")) model_values += value.size();
    out.text += fmt::format("  {:<48} {:<5} {}\n", base::escape(entry.name), tensor::name_of(entry.dtype), entry.dims_text());
    if (const std::int64_t bad = count_not_finite(value); bad > 0) {
      not_finite += bad;
      if (tensors_not_finite++ == 0) first_not_finite = entry.name;
    }
  }
  const bool checked = file.has_checksums();
  out.verdict = fmt::format("{} tensors, {} values ({} of the model), {}; checksums {}\n", file.entries().size(), human(values),
                            human(model_values), base::human_bytes(static_cast<std::uint64_t>(bytes)), checked ? "verified" : "absent");
  if (not_finite > 0) {
    out.verdict += fmt::format("WARNING: {} NaN or infinite, in {}, the first {}\n",
                               base::human_count(static_cast<std::uint64_t>(not_finite), "value"),
                               base::human_count(static_cast<std::uint64_t>(tensors_not_finite), "tensor"), base::escape(first_not_finite));
    out.metrics.emplace_back("first_not_finite", first_not_finite);
  }
  out.metrics.emplace_back("not_finite", not_finite);
  out.metrics.emplace_back("tensors", static_cast<std::int64_t>(file.entries().size()));
  out.metrics.emplace_back("values", values);
  out.metrics.emplace_back("parameters", model_values);
  out.metrics.emplace_back("checksums", std::string(checked ? "verified" : "absent"));
  out.text += out.verdict;
  if (const auto config = metadata.find("config"); config != metadata.end()) out.text += "\n" + config->second;
  return out;
}

// No more of it in memory than its header.
Shown show_export(const std::filesystem::path& path) {
  const format::DmexpFile file(path);
  const auto& header = file.header();
  (void)network::check_export(file);
  Shown out;
  const auto line = [&](const std::string& key, report::Metric metric, const std::string& value) {
    out.text += fmt::format("  {:<18} {}\n", key, value);
    out.metrics.push_back(std::move(metric));
  };
  line("bytes", {"bytes", static_cast<std::int64_t>(file.size())}, base::human_count(file.size()));
  line("format", {"format", std::int64_t{header.version}}, std::to_string(header.version));
  line("dtype", {"dtype", header.dtype}, header.dtype);
  line("source", {"source", header.source}, base::escape(header.source));
  line("step", {"step", header.step}, std::to_string(header.step));
  line("largest |w|", {"max_abs", header.max_abs}, fmt::format("{:g}", header.max_abs));
  line("smallest |w| > 0", {"min_nonzero_abs", header.min_nonzero_abs}, fmt::format("{:g}", header.min_nonzero_abs));
  line("flushed to zero", {"flushed", header.flushed}, human(header.flushed));
  if (header.bpb) {
    const std::string window = header.window ? fmt::format(" over {} B", human(*header.window)) : "";
    line("bpb", {"bpb", *header.bpb}, fmt::format("{:.4f}{}, of its source", *header.bpb, window));
  }
  if (header.window) out.metrics.emplace_back("window", *header.window);
  for (const auto& entry : header.tensors) {
    const std::string scales = format::has_scales(entry.shape.storage) ? fmt::format(" by {}", format::name_of(entry.shape.axis)) : "";
    out.text += fmt::format("  {:<48} {:<16} {}\n", base::escape(entry.name), std::string(format::name_of(entry.shape.storage)) + scales,
                            config::to_toml(config::Value(entry.shape.dims)));
  }
  const std::string checksums = header.has_checksum ? "verified" : "payload verified, header without one (written by another program)";
  out.text += fmt::format("{} tensors, {} parameters, {}; checksums {}\n", header.tensors.size(), human(header.num_params),
                          base::human_bytes(header.payload_bytes), checksums);
  out.metrics.emplace_back("tensors", static_cast<std::int64_t>(header.tensors.size()));
  out.metrics.emplace_back("parameters", header.num_params);
  out.metrics.emplace_back("checksums", checksums);
  out.text += "\n" + header.config;
  return out;
}

Shown show_gguf(const std::filesystem::path& path) {
  constexpr std::size_t kShown = 100;
  const format::GgufFile file(path);
  Shown out;
  for (const auto& [key, value] : file.metadata()) {
    if (key == "dormouse.config") continue;
    out.text += fmt::format("  {:<36} {}\n", base::escape(key, kShown), base::escape(value, kShown));
    out.metrics.emplace_back(key, value);
  }
  std::int64_t values = 0;
  for (const auto& entry : file.entries()) {
    std::int64_t size = 1;
    for (const std::int64_t d : entry.dims) size *= d;
    values += size;
    out.text += fmt::format("  {:<48} {:<6} {}\n", base::escape(entry.name), entry.type_name, config::to_toml(config::Value(entry.dims)));
  }
  const bool checked = file.has_checksum();
  out.text += fmt::format("{} tensors, {} values; checksum {}\n", file.entries().size(), human(values), checked ? "verified" : "absent");
  out.metrics.emplace_back("tensors", static_cast<std::int64_t>(file.entries().size()));
  out.metrics.emplace_back("values", values);
  out.metrics.emplace_back("checksums", std::string(checked ? "verified" : "absent"));
  return out;
}

// Lengths and checksums of the archive; what its messages say needs the model.
Shown show_dmz(const std::filesystem::path& path) {
  const auto file = base::File::open_read(path);
  const std::uint64_t size = file.size();
  std::uint64_t at = 0;
  const auto read = [&](std::span<std::uint8_t> out) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), size - at));
    file.read_exactly_at(at, out.first(count));
    at += count;
    return count;
  };
  decode::ArchiveReader archive(read, base::escape(path.string(), 1024));
  std::int64_t blocks = 0, raw = 0;
  for (decode::ArchiveBlock block; archive.next(block); ++blocks) raw += block.raw() ? 1 : 0;
  const auto& header = archive.header();
  const auto whole = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
  Shown out;
  out.text = fmt::format(
      "  {:<18} {}\n  {:<18} {}\n  {:<18} {} of {} bytes, {} of them raw\n  {:<18} {:08x}\n  {:<18} {:08x}\n  {:<18} {}\nchecksums "
      "verified\n",
      "bytes", base::human_count(size), "original bytes", base::human_count(archive.original_size()), "blocks", blocks, header.block, raw,
      "model CRC-32", header.model_crc, "probe CRC-32", header.probe_crc, "CPU level", base::escape(header.cpu_level));
  out.metrics = {{"bytes", whole(size)},
                 {"original_bytes", whole(archive.original_size())},
                 {"blocks", blocks},
                 {"raw_blocks", raw},
                 {"block_bytes", std::int64_t{header.block}},
                 {"model_crc", std::int64_t{header.model_crc}},
                 {"probe_crc", std::int64_t{header.probe_crc}},
                 {"cpu_level", header.cpu_level},
                 {"checksums", std::string("verified")}};
  return out;
}

// The progress of the run that this checkpoint belongs to, in place of its tensors. What `train` did not write is shown as any other file.
Shown show_run(const train::RunDirectory& run) {
  const format::SafetensorsFile file(run.checkpoint());
  Shown out = show_safetensors(file);
  const auto& metadata = file.metadata();
  const auto kind = metadata.find("dormouse.kind"), config_text = metadata.find("config");
  if (kind == metadata.end() || kind->second != "checkpoint" || config_text == metadata.end()) return out;
  try {
    const std::string where = run.checkpoint().string();
    const auto config = train::read_config(config_text->second, where + " (config)");
    const auto progress = train::read_progress(file, where);
    out.text = fmt::format("{}\n{}\n       {} info {}    (tensors and settings)\ncheckpoint.safetensors: {}", train::description(config),
                           train::summary(run, config, progress), base::program(), base::shell_word(where), out.verdict);
  } catch (const base::Error& error) {
    out.text += fmt::format("\nWARNING: how far the run came cannot be told: {}\n", error.what());
  }
  return out;
}

int show_file(const Flags& flags) {
  const train::RunDirectory run{flags.file};
  const auto path = network::model_path(flags.file);
  std::error_code ignored;
  const bool regular = std::filesystem::is_regular_file(path, ignored);
  const auto kind = regular ? format::recognise_file(path).kind : format::Kind::unknown;
  Shown shown = kind == format::Kind::dmexp  ? show_export(path)
                : kind == format::Kind::gguf ? show_gguf(path)
                : kind == format::Kind::dmz  ? show_dmz(path)
                : path == run.checkpoint()   ? show_run(run)
                                             : show_safetensors(format::SafetensorsFile(path));  // names what it is when it is none
  shown.metrics.insert(shown.metrics.begin(), {"file", path.string()});
  print(flags.machine.json ? report::to_json(shown.metrics) + "\n" : base::escape(flags.file) + "\n" + shown.text);
  return 0;
}

int run(const Flags& flags) {
  if (flags.file.empty() == flags.preset.empty()) throw base::UsageError("info shows one thing: a FILE, or --preset NAME");
  return flags.preset.empty() ? show_file(flags) : show_preset(flags);
}

}  // namespace

void add_info(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  Command command(app, "info", "what a file holds, checksums verified; how far a run came; or a preset's parameter table");
  command.optional("file", flags->file, "export, checkpoint, any safetensors or GGUF file, a .dmz, or a run directory", "FILE");
  command.optional("--preset", flags->preset, "tiny, nano, small, base", "NAME");
  command.flag("--json", flags->machine.json, "print one JSON object");
  command.footer(
      "NaN and infinite values are counted in safetensors files. In exports and GGUF files they are not looked for, only checksums\n"
      "verified where there are some: dormouse export writes no NaN and no infinity, and loading an export refuses both.\n"
      "Examples:\n  dormouse info runs/a\n  dormouse info runs/a/model.dmexp\n  dormouse info runs/a/checkpoint.safetensors\n  dormouse "
      "info --preset small");
  command.action(context, [flags] { return run(*flags); });
}

}  // namespace dormouse::cli
