#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/shell.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/held_out.h"
#include "evaluate/agreement.h"
#include "evaluate/bpb.h"
#include "format/kind.h"
#include "format/safetensors.h"
#include "network/dormouse/export.h"
#include "network/dormouse/weights.h"
#include "report/metrics.h"
#include "train/signals.h"

namespace dormouse::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDamageBytes = 64 * 1024;  // of held-out text, scored before and after rounding to ternary
// Of held-out text, whose logits are compared with those of f32: bytes, and bytes x parameters, half a second on two cores.
constexpr std::int64_t kDifferenceBytes = 4096, kDifferenceWork = 10'000'000'000;

struct Flags {
  std::string source, out, dtype = "bf16", format = "dmexp";
  bool best = false, force = false;
  Machine machine;
};

struct Plan {
  fs::path input, output;
  fs::path run;  // the directory of the input
  bool from_run = false;
};

std::string extension(const std::string& format) {
  for (const std::string known : {"dmexp", "safetensors", "gguf"}) {
    if (format == known) return "." + known;
  }
  throw base::UsageError(fmt::format("--format \"{}\": expected dmexp, safetensors or gguf", base::escape(format, 80)));
}

void check_dtype(const std::string& dtype) {
  if (!format::storage_named(dtype))
    throw base::UsageError(fmt::format("--dtype \"{}\": expected bf16, f16, f32, int8 or ternary", base::escape(dtype, 80)));
}

Plan plan_of(const Flags& flags) {
  Plan plan;
  const std::string suffix = extension(flags.format);
  std::error_code ignored;
  const fs::path source = flags.source;
  plan.from_run = fs::is_directory(source, ignored);
  if (flags.best && !plan.from_run) throw base::UsageError("--best takes the best.safetensors of a run directory; give the directory");
  plan.input = flags.best ? source / "best.safetensors" : network::model_path(source);
  plan.run = plan.from_run ? source : source.parent_path();
  if (flags.best && !fs::exists(plan.input, ignored))
    throw base::Error(fmt::format("{} has no best.safetensors yet: nothing was evaluated; leave --best out", base::escape(flags.source)));
  if (flags.out == "-") throw base::UsageError("-o -: an export is read back after it is written, so it needs a file; give it a name");
  if (!flags.out.empty()) {
    plan.output = flags.out;
  } else if (plan.from_run) {
    plan.output = source / ("model" + suffix);
  } else {
    plan.output = plan.input;
    plan.output.replace_extension(suffix);
    if (plan.output == plan.input) plan.output.replace_extension(".model" + suffix);
  }
  return plan;
}

// What stands under the name of the output is replaced only by a file of its own kind.
void guard_output(const Plan& plan, const Flags& flags) {
  std::error_code ignored;
  if (fs::equivalent(plan.input, plan.output, ignored))
    throw base::UsageError(fmt::format("{} is what is exported; name another file with -o", base::escape(plan.output.string())));
  if (!fs::is_regular_file(plan.output, ignored) || fs::file_size(plan.output, ignored) == 0) return;
  const auto there = format::recognise_file(plan.output);
  bool same =
      (flags.format == "dmexp" && there.kind == format::Kind::dmexp) || (flags.format == "gguf" && there.kind == format::Kind::gguf);
  if (flags.format == "safetensors" && there.kind == format::Kind::safetensors) {
    const format::SafetensorsFile file(plan.output);
    const auto kind = file.metadata().find("dormouse.kind");
    same = kind != file.metadata().end() && kind->second == "model";
  }
  if (same) return;
  throw base::Error(fmt::format("{} exists and is {}; it is not replaced by an export: name another file with -o",
                                base::escape(plan.output.string()), there.what.empty() ? "another kind of file" : there.what));
}

struct Written {
  std::uint64_t bytes = 0;
  std::int64_t parameters = 0;
  std::size_t tensors = 0;
  std::optional<format::DmexpHeader> header;
  bool rounded = false;  // factors were not ternary, and are now
};

Written write(const Plan& plan, const Flags& flags, network::Model& model) {
  const auto provenance = network::provenance_of(model);
  Written out;
  out.parameters = network::count(model.parameters, model.config);
  out.tensors = network::list(model.parameters, model.config).size();
  if (flags.format == "safetensors") {
    out.bytes = network::write_interchange(plan.output, model.parameters, model.config, provenance, flags.dtype);
  } else if (flags.format == "gguf") {
    out.bytes = network::write_model_gguf(plan.output, model.parameters, model.config, provenance, flags.dtype, flags.force);
  } else {
    const auto image = network::export_image(model.parameters, model.config, provenance, flags.dtype, flags.force);
    out.bytes = format::write_dmexp(plan.output, image);
    out.header = image.header;
    out.rounded = image.inexact > 0;
  }
  return out;
}

struct Damage {
  double before = 0, after = 0;
  std::int64_t bytes = 0;
};

// What `measure` finds on at most `limit` bytes of the run's held-out text where that is at hand; else the reason why not.
template <class Measure>
auto on_held_out(const Plan& plan, const network::Model& model, std::int64_t limit, std::string& reason, const Measure& measure)
    -> std::optional<decltype(measure(std::span<const std::uint8_t>()))> {
  try {
    const auto window = held_out_window(plan.run.empty() ? "." : plan.run, model.config, limit, "bring the files back and export again");
    if (window) return measure(std::span<const std::uint8_t>(window->bytes));
    reason = "no run directory with its text beside it";
  } catch (const base::Error& error) {
    reason = error.what();
  }
  return std::nullopt;
}

// What rounding cost.
std::optional<Damage> damage_of(const Plan& plan, network::Model& model, std::string& reason) {
  return on_held_out(plan, model, kDamageBytes, reason, [&](std::span<const std::uint8_t> window) {
    evaluate::BpbOptions options;
    options.row = model.config.max_seq_len;
    auto narrow = network::load_model(plan.output);
    const auto before = evaluate::bits_per_byte(model.config, model.parameters, window, options);
    const auto after = evaluate::bits_per_byte(narrow.config, narrow.parameters, window, options);
    return Damage{before.bpb, after.bpb, before.bytes};
  });
}

// The export as it decodes against the weights it was made of.
std::optional<evaluate::Agreement> difference_of(const Plan& plan, network::Model& model, std::string& reason) {
  const std::int64_t affordable = kDifferenceWork / network::count(model.parameters, model.config) / 256 * 256;
  const std::int64_t bytes = std::clamp<std::int64_t>(affordable, 256, kDifferenceBytes);
  return on_held_out(plan, model, bytes, reason, [&](std::span<const std::uint8_t> window) {
    const std::vector narrow = {network::read_weights(network::load_export(plan.output))};
    return evaluate::agreement(network::read_weights(model.parameters, model.config), narrow, window).at(0);
  });
}

std::string next_command(const Plan& plan, const Flags& flags) {
  const std::string file = base::shell_word(plan.output.string()), dormouse = base::program();
  if (flags.format != "dmexp") return fmt::format("{} info {}", dormouse, file);
  const bool in_place = plan.from_run && plan.output == fs::path(flags.source) / "model.dmexp";
  return fmt::format("{} generate {} -p \"Once upon a time\" -n 300", dormouse, in_place ? base::shell_word(flags.source) : file);
}

// A line when the run keeps other weights as its best, "" otherwise.
std::string remark_on_best(const Plan& plan, std::int64_t step) {
  const fs::path best = plan.run / "best.safetensors";
  std::error_code ignored;
  if (!plan.from_run || plan.input == best || !fs::exists(best, ignored)) return "";
  try {
    const std::int64_t best_step = network::read_step(format::SafetensorsFile(best));
    if (best_step == step) return "";
    return fmt::format("  the best evaluation of this run was at step {}, and its weights are kept: {} export {} --best\n",
                       base::human_count(static_cast<std::uint64_t>(best_step)), base::program(), base::shell_word(plan.run.string()));
  } catch (const base::Error&) {  // damaged: --best says so
    return "";
  }
}

int run(const Flags& flags) {
  train::watch_signals();
  check_dtype(flags.dtype);
  const Plan plan = plan_of(flags);
  flags.machine.apply();
  auto model = network::load_model(plan.input);
  guard_output(plan, flags);
  const Written written = write(plan, flags, model);

  std::vector<report::Metric> metrics = {{"file", plan.output.string()},
                                         {"format", flags.format},
                                         {"dtype", flags.dtype},
                                         {"source", fmt::format("{}@step{}", plan.input.filename().string(), model.step)},
                                         {"parameters", written.parameters},
                                         {"bytes", static_cast<std::int64_t>(written.bytes)}};
  std::string text = fmt::format(
      "{}: {}, {} parameters in {} tensors, {} ({} bytes); from {} at step {} ({})\n", base::escape(plan.output.string()), flags.dtype,
      base::human_count(static_cast<std::uint64_t>(written.parameters)), written.tensors, base::human_bytes(written.bytes),
      base::human_count(written.bytes), base::escape(plan.input.string()), model.step, base::human_bytes(fs::file_size(plan.input)));
  if (written.header) {
    const auto& header = *written.header;
    text += fmt::format("  largest |w| {:g}, smallest not zero {:g}, {} flushed to zero; read back and compared\n", header.max_abs,
                        header.min_nonzero_abs, base::human_count(static_cast<std::uint64_t>(header.flushed)));
    metrics.emplace_back("max_abs", header.max_abs);
    metrics.emplace_back("min_nonzero_abs", header.min_nonzero_abs);
    metrics.emplace_back("flushed", header.flushed);
  }
  if (flags.format == "gguf" && flags.dtype == "ternary")
    text += "  TQ2_0 keeps its scales in f16: its values are not exactly those of a .dmexp\n";
  if (flags.format == "gguf" && flags.force)
    text +=
        fmt::format("  factors that were not ternary are rounded; what that costs is measured by: {} export {} --dtype ternary --force\n",
                    base::program(), base::shell_word(flags.source));
  if (written.rounded) {
    std::string reason;
    if (const auto damage = damage_of(plan, model, reason)) {
      text += fmt::format("  rounding to ternary: bpb {:.4f} -> {:.4f} over {} B of the run's held-out text\n", damage->before,
                          damage->after, base::human_count(static_cast<std::uint64_t>(damage->bytes)));
      metrics.emplace_back("bpb_before", damage->before);
      metrics.emplace_back("bpb", damage->after);
      metrics.emplace_back("window", damage->bytes);
    } else {
      text += fmt::format("  rounding to ternary: what it costs is not known here ({}); measure it: {} eval {} --data TEXT\n", reason,
                          base::program(), base::shell_word(plan.output.string()));
    }
  }
  if (written.header && flags.dtype != "f32") {
    std::string reason;
    if (const auto difference = difference_of(plan, model, reason)) {
      text += fmt::format("  largest difference of a logit over {} bytes of the run's held-out text: {:.2g} ({} against f32)\n",
                          base::human_count(static_cast<std::uint64_t>(difference->positions)), difference->largest, flags.dtype);
      metrics.emplace_back("logit_difference", difference->largest);
      metrics.emplace_back("logit_mean_difference", difference->mean);
      metrics.emplace_back("logit_positions", difference->positions);
    } else {
      text += fmt::format("  largest difference of a logit from f32: not known here ({})\n", reason);
    }
  }
  text += remark_on_best(plan, model.step);
  text += "next:  " + next_command(plan, flags) + "\n";
  print(flags.machine.json ? report::to_json(metrics) + "\n" : text);
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  Command command(app, "export", "make the one file that generate reads, or one for other programs");
  command.required("source", flags->source, "run directory (its newest checkpoint), checkpoint, or a safetensors model", "RUN|CHECKPOINT");
  command.optional("-o,--out", flags->out, "where to write (default: RUN/model.dmexp, or beside the checkpoint)", "FILE");
  command.optional("--dtype", flags->dtype, "bf16 (default), f16, f32, int8, ternary", "TYPE");
  command.optional("--format", flags->format, "dmexp (default), safetensors, gguf", "FORMAT");
  command.flag("--best", flags->best, "the weights with the lowest held-out BPB, best.safetensors of the run");
  command.flag("--force", flags->force, "ternary: round factors that are not ternary; prints what it costs");
  flags->machine.add(command, false);
  command.footer(
      "Examples:\n"
      "  dormouse export runs/a                                 runs/a/model.dmexp in bf16, which `generate runs/a` reads\n"
      "  dormouse export runs/a --best --dtype int8 -o a.dmexp\n"
      "  dormouse export runs/a --format safetensors            for transformers, PyTorch, ...");
  command.action(context, [flags] { return run(*flags); });
}

}  // namespace dormouse::cli
