#include "train/config.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/shell.h"
#include "base/units.h"
#include "base/version.h"
#include "config/toml.h"
#include "ops/cpu_level.h"

namespace dormouse::train {
namespace {

constexpr std::uint64_t kLargestConfig = 16U << 20;

double default_lr(std::int64_t d_model) {
  if (d_model <= 512) return 3e-3;
  if (d_model <= 768) return 2e-3;
  return 1e-3;
}

void apply(RunConfig& config, const Typed& typed) {
  const bool settable_data = typed.key == "eval_tail" || typed.key == "include" || typed.key == "exclude";
  try {
    if (config::set_field(config.model, typed.key, typed.text)) return;
    if (config::set_field(config.train, typed.key, typed.text)) return;
    if (settable_data && config::set_field(config.data, typed.key, typed.text)) return;
  } catch (const base::UsageError&) {
    throw;
  } catch (const base::Error& error) {
    throw base::UsageError(typed.spelling + ": " + error.what());
  }
  try {
    config::unknown_key(typed.key, typed.spelling, settable_keys(), base::program() + " train --help lists all keys");
  } catch (const base::Error& error) {
    throw base::UsageError(error.what());
  }
}

bool is_progress(const RunConfig& config, const std::string& key) {
  bool progress = false;
  for_each_field(config.train,
                 [&](const config::Field& field, const auto&) { progress = progress || (field.name == key && field.progress); });
  return progress;
}

std::string value_of(const RunConfig& config, const std::string& key) {
  std::string text;
  const auto find = [&](const config::Field& field, const auto& value) {
    if (field.name == key) text = config::to_toml(config::Value(value));
  };
  for_each_field(config.model, find);
  for_each_field(config.train, find);
  for_each_field(config.data, find);
  return text;
}

bool typed_key(const Request& request, std::string_view key) {
  return std::any_of(request.typed.begin(), request.typed.end(), [&](const Typed& typed) { return typed.key == key; });
}

using Sections = std::map<std::string, config::Table>;

void read_sections(RunConfig& config, const Sections& sections, std::string_view where) {
  for (const auto& [section, table] : sections) {
    if (section == "run") {
      config::read_table(config.run, table, where);
    } else if (section == "model") {
      config::read_table(config.model, table, where);
    } else if (section == "train") {
      config::read_table(config.train, table, where);
    } else if (section == "data") {
      config::read_table(config.data, table, where);
    } else if (section.empty() && table.empty()) {
      continue;
    } else if (section.empty()) {
      throw base::Error(fmt::format("{}: `{}` stands before the first section; put it under [model] or [train]", base::escape(where),
                                    base::escape(table.begin()->first)));
    } else {
      throw base::Error(fmt::format("{}: unknown section [{}]; known are [model] and [train]", base::escape(where), base::escape(section)));
    }
  }
}

std::string read_text(const std::filesystem::path& path) {
  const auto bytes = base::read_file(path, kLargestConfig);
  return {bytes.begin(), bytes.end()};
}

// The first key of [model] or [train] in which two configs differ; "" when none. Lengths (--extend changes them), progress keys and
// the keys of `skip` are left out.
std::string first_difference(const RunConfig& a, const RunConfig& b, std::string_view skip) {
  std::vector<std::pair<std::string, std::string>> texts;
  const auto collect = [&](const config::Field& field, const auto& value) {
    const bool free = field.progress || field.name == "steps" || field.name == "time_limit" || field.name == skip;
    if (!free) texts.emplace_back(field.name, config::to_toml(config::Value(value)));
  };
  for_each_field(a.model, collect);
  for_each_field(a.train, collect);
  const auto ours = std::exchange(texts, {});
  for_each_field(b.model, collect);
  for_each_field(b.train, collect);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] != texts[i]) return ours[i].first;
  }
  return "";
}

void derive(RunConfig& config) {
  auto& train = config.train;
  if (train.seq_len == 0) train.seq_len = config.model.max_seq_len;
  if (train.lr == 0) train.lr = default_lr(config.model.d_model);
  if (train.steps == 0 && train.time_limit == 0) train.time_limit = 600;
  if (train.compute.empty()) train.compute = "f32";
}

void validate_run(RunConfig& config) {
  network::validate(config.model);
  const auto& train = config.train;
  if (train.seq_len > config.model.max_seq_len) {
    throw base::UsageError(
        fmt::format("--seq-len {} is longer than the model's {} bytes; lower it, or raise the model: --set max_seq_len={}", train.seq_len,
                    config.model.max_seq_len, train.seq_len));
  }
  if (train.steps > 0 && train.time_limit > 0) {
    throw base::UsageError(fmt::format("a run ends by --steps {} or by --time-limit {}s: choose one", train.steps, train.time_limit));
  }
  static_cast<void>(compute_of(train.compute));
  if (!config.data.eval_path.empty() && config.data.eval_tail > 0) {
    throw base::UsageError("--eval and --eval-tail both name the held-out text: choose one");
  }
}

}  // namespace

std::vector<std::string_view> settable_keys() {
  const RunConfig config;
  std::vector<std::string_view> names;
  const auto collect = [&](const config::Field& field, const auto&) { names.push_back(field.name); };
  for_each_field(config.model, collect);
  for_each_field(config.train, collect);
  for (const std::string_view name : {"eval_tail", "include", "exclude"}) names.push_back(name);
  return names;
}

RunConfig read_config(std::string_view text, std::string_view where) {
  RunConfig config;
  const Sections sections = config::parse_toml(text, where);
  const auto section = [&](const std::string& name) -> const config::Table& {
    const auto found = sections.find(name);
    if (found != sections.end()) return found->second;
    throw base::Error(fmt::format("{}: the section [{}] is missing; bring the run's own file back", base::escape(where), name));
  };
  const auto& run = section("run");
  if (const auto version = run.find("version"); version != run.end()) {
    if (const auto* of = std::get_if<std::string>(&version->second)) refuse_newer(*of, where);
  }
  config::read_saved_table(config.run, run, where);
  config::read_saved_table(config.model, section("model"), where);
  config::read_saved_table(config.train, section("train"), where);
  config::read_saved_table(config.data, section("data"), where);
  read_sections(config, sections, where);  // unknown ones
  network::validate(config.model);
  return config;
}

void refuse_newer(std::string_view version, std::string_view where) {
  const auto major_minor = [](std::string_view text) {
    std::pair<unsigned, unsigned> value{0, 0};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.first);
    if (error == std::errc() && end + 1 < text.data() + text.size()) std::from_chars(end + 1, text.data() + text.size(), value.second);
    return value;
  };
  if (major_minor(version) <= major_minor(base::version())) return;
  throw base::Error(fmt::format("{}: written by dormouse {}, which is newer than this program ({}); use that version", base::escape(where),
                                base::escape(version, 40), base::version()));
}

std::string changed_key(const RunConfig& config, const RunConfig& saved) {
  if (const std::string key = first_difference(config, saved, ""); !key.empty()) return key;
  if (config.data.eval_tail != saved.data.eval_tail) return "eval_tail";
  if (config.data.include != saved.data.include) return "include";
  if (config.data.exclude != saved.data.exclude) return "exclude";
  if (config.data.held_out != saved.data.held_out) return "held_out";
  return config.data.identity != saved.data.identity ? "identity" : "";
}

RunConfig load_config(const std::filesystem::path& config_toml) { return read_config(read_text(config_toml), config_toml.string()); }

std::string write_config(const RunConfig& config) {
  return "[run]\n" + config::write_table(config.run) + "\n[model]\n" + config::write_table(config.model) + "\n[train]\n" +
         config::write_table(config.train) + "\n[data]\n" + config::write_table(config.data);
}

RunConfig resolve_new(const Request& request) {
  RunConfig config;
  if (request.preset && request.config_file) throw base::UsageError("--preset and --config both choose the model: give one");
  if (request.config_file) {
    const std::string where = request.config_file->string();
    read_sections(config, config::parse_toml(read_text(*request.config_file), where), where);
    config.run = {};
    config.run.preset = request.config_file->filename().string();
    const auto keep = config.data;
    config.data = {};
    config.data.include = keep.include;
    config.data.exclude = keep.exclude;
    config.data.eval_tail = keep.eval_tail;
  } else {
    config.run.preset = request.preset.value_or("tiny");
    config.model = network::preset(config.run.preset);
  }
  config.run.version = base::version();
  if (request.data) config.data.path = request.data->string();
  if (request.eval) config.data.eval_path = request.eval->string();
  for (const auto& typed : request.typed) apply(config, typed);
  // A typed length replaces the other kind from a --config file.
  if (typed_key(request, "steps") && !typed_key(request, "time_limit")) config.train.time_limit = 0;
  if (typed_key(request, "time_limit") && !typed_key(request, "steps")) config.train.steps = 0;
  derive(config);
  validate_run(config);
  return config;
}

RunConfig resolve_existing(const Request& request, const RunConfig& base, std::string_view run_name) {
  RunConfig config = base;
  const std::string run = base::escape(run_name);
  const auto refuse = [&](const std::string& typed, const std::string& kept) {
    throw base::UsageError(
        fmt::format("{} was started with {} and {} was typed; a run keeps its settings: leave it out, or start another with --run", run,
                    kept, base::escape(typed)));
  };
  const auto refuse_length = [&](const std::string& typed) {
    const auto& train = base.train;
    const std::string length = train.steps > 0 ? base::human_count(static_cast<std::uint64_t>(train.steps), "step")
                                               : base::human_duration(train.time_limit) + " of training";
    throw base::UsageError(fmt::format(
        "{} is a run of {} and {} was typed; a run keeps its settings: leave it out (--extend N lengthens a finished run), or start "
        "another with --run",
        run, length, base::escape(typed)));
  };
  if (request.preset && *request.preset != base.run.preset) refuse("--preset " + *request.preset, "preset " + base.run.preset);
  if (request.config_file) {
    const RunConfig again = resolve_new(request);
    const std::string different = first_difference(again, base, "compute");  // what the machine decides
    if (!different.empty()) refuse("--config " + request.config_file->string(), "another " + different);
  }
  for (const auto& typed : request.typed) {
    RunConfig changed = config;
    apply(changed, typed);
    network::validate(changed.model);
    if (is_progress(base, typed.key)) {
      config = changed;
    } else if (changed == config) {
      continue;
    } else if (typed.key == "steps" || typed.key == "time_limit") {
      refuse_length(typed.spelling);
    } else {
      refuse(typed.spelling, typed.key + " = " + value_of(base, typed.key));
    }
  }
  if (request.data) config.data.path = request.data->string();
  if (request.eval) {
    if (base.data.eval_path.empty()) refuse("--eval " + request.eval->string(), "held-out text carved from its own data");
    config.data.eval_path = request.eval->string();
  }
  validate_run(config);
  return config;
}

optim::OptimizerConfig optimizer_config(const TrainConfig& train) {
  optim::OptimizerConfig config;
  config.opt = train.opt;
  config.weight_decay = train.wd;
  config.grad_clip = train.grad_clip;
  config.ns_steps = train.ns_steps;
  if (train.compute == "i16") config.ns_compute = ops::Compute::i16;  // bf16 was not measured there
  config.mult_muon = train.mult_muon;
  config.mult_qk = train.mult_qk;
  config.mult_dense = train.mult_dense;
  config.mult_table = train.mult_table;
  config.mult_embedding = train.mult_embedding;
  config.mult_rest = train.mult_rest;
  config.retract_every = train.retract_every;
  config.retract_iters = train.retract_iters;
  return config;
}

ops::Compute compute_of(std::string_view name) {
  if (name.empty() || name == "f32") return ops::Compute::f32;
  const auto refuse_without = [&](bool native, std::string_view instructions) {
    if (!native) {
      throw base::UsageError(
          fmt::format("--compute {} needs a CPU with {} (this process uses level {}); use --compute f32, or continue a run that began so "
                      "where it began",
                      name, instructions, ops::cpu_level()));
    }
  };
  if (name == "bf16") {
    refuse_without(ops::native_bf16(), "AVX512_BF16");
    return ops::Compute::bf16;
  }
  if (name == "i16") {
    refuse_without(ops::native_i16(), "AVX2");
    return ops::Compute::i16;
  }
  throw base::UsageError(fmt::format("--compute {}: choose f32, bf16 or i16", base::escape(name)));
}

}  // namespace dormouse::train
