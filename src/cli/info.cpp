#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "format/safetensors.h"
#include "network/dormouse/model_file.h"
#include "optim/optimizer.h"
#include "report/metrics.h"

namespace dormouse::cli {
namespace {

struct Flags {
  std::string file, preset, opt = "mix";
  Machine machine;
};

int show_preset(const Flags& flags) {
  const auto config = network::preset(flags.preset);
  auto parameters = network::declare_parameters(config);
  const auto list = network::list(parameters, config);
  std::string text = fmt::format("{:<36} {:>16} {:>12}  {:<13} {:<10} {}\n", "parameter", "shape", "values", "role", "kind", "group");
  for (const auto* p : list) {
    text += fmt::format("{:<36} {:>16} {:>12}  {:<13} {:<10} {}\n", p->name, p->value.shape().text(),
                        base::human_count(static_cast<std::uint64_t>(p->value.size())), tensor::name_of(p->role), tensor::name_of(p->kind),
                        optim::name_of(optim::group_of(*p, flags.opt)));
  }
  const std::int64_t total = network::count(parameters, config);
  text += fmt::format("{}: {} tensors, {} parameters, equations {}\n", flags.preset, list.size(),
                      base::human_count(static_cast<std::uint64_t>(total)), config.equations);
  const std::vector<report::Metric> metrics = {{"preset", flags.preset},
                                               {"tensors", static_cast<std::int64_t>(list.size())},
                                               {"parameters", total},
                                               {"equations", config.equations}};
  print(flags.machine.json ? report::to_json(metrics) + "\n" : text);
  return 0;
}

int show_file(const Flags& flags) {
  const auto path = network::model_path(flags.file);
  const format::SafetensorsFile file(path);
  const auto& metadata = file.metadata();
  std::vector<report::Metric> metrics = {{"file", path.string()}};
  std::string text = base::escape(path.string()) + "\n";
  for (const auto& [key, value] : metadata) {
    if (key == "crc32" || key == "config" || key == "anchors") continue;
    text += fmt::format("  {:<18} {}\n", base::escape(key), base::escape(value));
    metrics.emplace_back(key, value);
  }
  std::int64_t values = 0, model_values = 0, bytes = 0;
  for (const auto& entry : file.entries()) {
    const auto value = file.read(entry);
    values += value.size();
    bytes += static_cast<std::int64_t>(entry.end - entry.begin);
    if (entry.name.starts_with("model.")) model_values += value.size();
    text += fmt::format("  {:<48} {:<5} {}\n", base::escape(entry.name), tensor::name_of(entry.dtype), entry.dims_text());
  }
  const bool checked = file.has_checksums();
  text += fmt::format("{} tensors, {} values ({} of the model), {}; checksums {}\n", file.entries().size(),
                      base::human_count(static_cast<std::uint64_t>(values)), base::human_count(static_cast<std::uint64_t>(model_values)),
                      base::human_bytes(static_cast<std::uint64_t>(bytes)), checked ? "verified" : "absent");
  metrics.emplace_back("tensors", static_cast<std::int64_t>(file.entries().size()));
  metrics.emplace_back("values", values);
  metrics.emplace_back("parameters", model_values);
  metrics.emplace_back("checksums", std::string(checked ? "verified" : "absent"));
  if (const auto config = metadata.find("config"); config != metadata.end() && !flags.machine.json) text += "\n" + config->second;
  print(flags.machine.json ? report::to_json(metrics) + "\n" : text);
  return 0;
}

int run(const Flags& flags) {
  if (flags.file.empty() == flags.preset.empty()) throw base::UsageError("info shows one thing: a FILE, or --preset NAME");
  return flags.preset.empty() ? show_file(flags) : show_preset(flags);
}

}  // namespace

void add_info(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  auto* command = app.add_subcommand("info", "what a file holds, checksums verified; or a preset's parameter table");
  command->add_option("file", flags->file, "checkpoint, weights, any safetensors file, or a run directory")->type_name("FILE");
  command->add_option("--preset", flags->preset, "tiny, nano, small, base")->type_name("NAME");
  command->add_flag("--json", flags->machine.json, "print one JSON object");
  command->footer("Examples:\n  dormouse info runs/a/checkpoint.safetensors\n  dormouse info --preset small");
  command->callback([&context, flags] { context.action = [flags] { return run(*flags); }; });
}

}  // namespace dormouse::cli
