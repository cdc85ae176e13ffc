#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/units.h"
#include "cli/commands.h"
#include "decode/speed.h"
#include "network/dormouse/weights.h"
#include "ops/cpu_level.h"
#include "report/metrics.h"
#include "train/fingerprint.h"
#include "train/speed.h"

namespace dormouse::cli {
namespace {

struct Flags {
  std::string model, preset, batch, seq_len, repeats = "7";
  std::vector<std::string> set;
  bool train = false, fingerprint = false;
  Machine machine;
};

using decode::Spread;

void add_spread(std::vector<report::Metric>& metrics, const std::string& key, const Spread& value) {
  metrics.push_back({key, value.median});
  metrics.push_back({key + "_low", value.low});
  metrics.push_back({key + "_high", value.high});
}

std::string heading(const std::string& name, std::int64_t repeats) {
  return fmt::format("{}: {}, {}, {} repeats taking turns\n\n", name,
                     base::human_count(static_cast<std::uint64_t>(base::threads()), "thread"), ops::cpu_level(), repeats);
}

network::Weights weights_of(const Flags& flags) {
  if (!flags.model.empty()) return network::read_weights(network::load_export(flags.model));
  auto config = network::preset(flags.preset);
  network::validate(config);
  auto parameters = network::make_parameters(config, 1);
  return network::read_weights(parameters, config);
}

int decoding(const Flags& flags, std::int64_t streams, std::int64_t repeats) {
  const auto weights = weights_of(flags);
  const std::string name = flags.model.empty() ? "preset " + flags.preset + " (f32, untrained)" : base::escape(weights.path.string(), 1024);
  const auto speed = decode::measure_speed(weights, streams, repeats);
  const auto bytes = decode::weight_bytes(weights);
  const double share = speed.one.median / speed.limit.median;
  if (flags.machine.json) {
    std::vector<report::Metric> metrics = {{"model", name},
                                           {"cpu_level", ops::cpu_level()},
                                           {"threads", static_cast<std::int64_t>(base::threads())},
                                           {"weight_bytes_per_byte", static_cast<std::int64_t>(bytes)},
                                           {"streams", streams},
                                           {"repeats", repeats}};
    add_spread(metrics, "one_bytes_per_second", speed.one);
    add_spread(metrics, "limit_bytes_per_second", speed.limit);
    metrics.push_back({"share_of_limit", share});
    add_spread(metrics, "together_bytes_per_second", speed.batch);
    metrics.push_back({"times_one", speed.batch.median / speed.one.median});
    add_spread(metrics, "prompt_bytes_per_second", speed.prompt);
    print(report::to_json(metrics) + "\n");
    return 0;
  }
  const auto row = [&](const std::string& what, const Spread& value, const std::string& note) {
    return fmt::format("| {:<26} | {:>7.0f} | {:>7.0f} .. {:>7.0f} | {:<41} |\n", what, value.median, value.low, value.high, note);
  };
  print(
      heading(name, repeats) + fmt::format("| {:<26} | {:>7} | {:>18} | {:<41} |\n", "decoding", "bytes/s", "lowest .. highest", "") +
      fmt::format("|{:-<28}|{:->8}:|{:-<20}|{:-<43}|\n", "", "", "", "") +
      row("one text", speed.one, fmt::format("{:.0f}% of the limit", 100 * share)) +
      row("limit", speed.limit, fmt::format("reading its weights: {:.1f} MB a byte", static_cast<double>(bytes) / 1e6)) +
      row(fmt::format("{} texts together", streams), speed.batch, fmt::format("{:.2f} times one", speed.batch.median / speed.one.median)) +
      row("reading a prompt", speed.prompt, ""));
  return 0;
}

train::RunConfig training_config(const Flags& flags) {
  if (!flags.model.empty() && !flags.set.empty())
    throw base::UsageError("--set changes a preset, and MODEL has its own config; use --preset NAME, or leave --set out");
  train::Request request;
  if (!flags.preset.empty()) request.preset = flags.preset;
  for (const auto& set : flags.set) request.typed.push_back(typed_set(set));
  if (!flags.batch.empty()) request.typed.push_back({"batch", flags.batch, "--batch " + flags.batch});
  if (!flags.seq_len.empty() && flags.model.empty()) request.typed.push_back({"seq_len", flags.seq_len, "--seq-len " + flags.seq_len});
  if (!flags.machine.compute.empty()) request.typed.push_back({"compute", flags.machine.compute, "--compute " + flags.machine.compute});
  auto config = train::resolve_new(request);
  if (flags.model.empty()) return config;
  config.model = network::load_export(flags.model).config;
  const auto longest = config.model.max_seq_len;
  config.train.seq_len = flags.seq_len.empty() ? longest : base::parse_count(flags.seq_len, "--seq-len", 1, longest);
  return config;
}

std::vector<report::Metric> training_metrics(const std::string& name, const train::RunConfig& config, const train::TrainSpeed& speed,
                                             std::int64_t repeats) {
  std::vector<report::Metric> metrics = {{"model", name},
                                         {"cpu_level", ops::cpu_level()},
                                         {"threads", static_cast<std::int64_t>(base::threads())},
                                         {"compute", config.train.compute},
                                         {"batch", config.train.batch},
                                         {"seq_len", config.train.seq_len},
                                         {"accum", config.train.accum},
                                         {"repeats", repeats}};
  for (const auto& stage : speed.stages) {
    add_spread(metrics, stage.name + "_forward_ms", stage.forward);
    add_spread(metrics, stage.name + "_backward_ms", stage.backward);
    metrics.push_back({stage.name + "_gflop", stage.gflop});
  }
  add_spread(metrics, "step_ms", speed.step);
  add_spread(metrics, "bytes_per_second", speed.bytes_per_second);
  metrics.push_back({"step_gflop", speed.gflop});
  add_spread(metrics, "gflop_per_second", speed.gflops);
  add_spread(metrics, "limit_gflop_per_second", speed.limit);
  metrics.push_back({"share_of_limit", speed.gflops.median / speed.limit.median});
  metrics.push_back({"start_seconds", speed.start_seconds});
  return metrics;
}

std::string training_table(const train::TrainSpeed& speed) {
  std::string text = fmt::format("| {:<10} | {:>10} | {:>11} | {:>7} | {:>7} | {:>7} |\n", "stage", "forward ms", "backward ms", "of step",
                                 "GFLOP", "GFLOP/s") +
                     fmt::format("|{:-<12}|{:->11}:|{:->12}:|{:->8}:|{:->8}:|{:->8}:|\n", "", "", "", "", "", "");
  const auto row = [&](const std::string& what, double forward, double backward, double gflop) {
    const double milliseconds = forward + backward;
    const std::string products = gflop > 0 ? fmt::format("{:>7.1f} | {:>7.0f}", gflop, gflop / milliseconds * 1e3) : "        |        ";
    text += fmt::format("| {:<10} | {:>10.1f} | {:>11.1f} | {:>6.1f}% | {} |\n", what, forward, backward,
                        100 * milliseconds / speed.step.median, products);
  };
  for (const auto& stage : speed.stages) row(stage.name, stage.forward.median, stage.backward.median, stage.gflop);
  text += fmt::format("| {:<10} | {:>10} | {:>11} | {:>6.1f}% | {:>7.1f} | {:>7.0f} |\n", "step", "", "", 100.0, speed.gflop,
                      speed.gflops.median);
  const auto spread = [](const Spread& value, const char* unit) {
    return fmt::format("{:.0f} {} ({:.0f} .. {:.0f})", value.median, unit, value.low, value.high);
  };
  text += fmt::format("\nstep {:.1f} ms ({:.1f} .. {:.1f}), {}\n", speed.step.median, speed.step.low, speed.step.high,
                      spread(speed.bytes_per_second, "bytes/s"));
  text += fmt::format("its products {}, {:.0f}% of the limit: one large product, {}\n", spread(speed.gflops, "GFLOP/s"),
                      100 * speed.gflops.median / speed.limit.median, spread(speed.limit, "GFLOP/s"));
  return text + fmt::format("from the start to the end of the first step {:.2f} s\n", speed.start_seconds);
}

int training(const Flags& flags, std::int64_t repeats) {
  const auto config = training_config(flags);
  const std::string name =
      flags.model.empty() ? "preset " + config.run.preset : base::escape(flags.model, 1024) + " (its sizes, untrained)";
  const auto speed = train::measure_training(config, repeats);
  if (flags.machine.json) {
    print(report::to_json(training_metrics(name, config, speed, repeats)) + "\n");
    return 0;
  }
  const auto rows = config.train.batch * config.train.accum;
  print(heading(fmt::format("{}, {} rows of {} bytes, {}", name, rows, config.train.seq_len, config.train.compute), repeats) +
        training_table(speed));
  return 0;
}

int fingerprint(const Flags& flags) {
  const auto all = train::fingerprints(base::threads());
  if (!flags.machine.json) {
    print(fmt::format("| {:<9} | {:<13} | {:>7} | {:<16} | {:<16} |\n|{:-<11}|{:-<15}|{:->8}:|{:-<18}|{:-<18}|\n", "CPU level", "products",
                      "threads", "training", "decoding", "", "", "", "", ""));
  }
  for (const auto& one : all) {
    const std::string training = fmt::format("{:016x}", one.training), decoding = fmt::format("{:016x}", one.decoding);
    if (flags.machine.json) {
      const std::vector<report::Metric> metrics = {{"cpu_level", one.cpu_level},
                                                   {"products", one.gemm},
                                                   {"threads", static_cast<std::int64_t>(one.threads)},
                                                   {"training", training},
                                                   {"decoding", decoding}};
      print(report::to_json(metrics) + "\n");
    } else {
      print(fmt::format("| {:<9} | {:<13} | {:>7} | {} | {} |\n", one.cpu_level, one.gemm, one.threads, training, decoding));
    }
  }
  return 0;
}

int run(const Flags& flags) {
  constexpr std::int64_t kMostStreams = 4096, kMostRepeats = 10'000;
  const std::int64_t batch = flags.batch.empty() ? 8 : base::parse_count(flags.batch, "--batch", 1, kMostStreams),
                     repeats = base::parse_count(flags.repeats, "--repeats", 1, kMostRepeats);
  flags.machine.apply();
  if (flags.fingerprint) {
    const bool other = flags.train ||
                       !(flags.model + flags.preset + flags.batch + flags.seq_len + flags.machine.compute + flags.machine.cpu).empty() ||
                       !flags.set.empty();
    if (other)
      throw base::UsageError("--fingerprint computes one small model of its own at every CPU level; leave out the model and all settings");
    return fingerprint(flags);
  }
  if (flags.model.empty() == flags.preset.empty())
    throw base::UsageError("speed takes a MODEL (an export or a run directory) or --preset NAME, one of them");
  if (flags.train) return training(flags, repeats);
  if (!flags.seq_len.empty() || !flags.set.empty() || !flags.machine.compute.empty())
    throw base::UsageError("--set, --seq-len and --compute are of a training step; add --train");
  return decoding(flags, batch, repeats);
}

}  // namespace

void add_speed(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  Command command(app, "speed", "measure how fast a model decodes or trains here, beside the limit of this machine");
  command.optional("model,-m,--model", flags->model, "export (.dmexp), or a run directory: its model.dmexp", "MODEL");
  command.optional("--preset", flags->preset, "an untrained model of this preset instead", "NAME");
  command.flag("--train", flags->train, "the training step: where its time goes, by parts of the network");
  command.optional("--batch", flags->batch, "texts decoded together, or rows of a training step (default 8)", "B");
  command.optional("--seq-len", flags->seq_len, "bytes per row of a training step; default: the model's max_seq_len", "T");
  command.optional("--set", flags->set, "with --train: change one key of the config, e.g. --set n_experts=2", "KEY=VALUE");
  command.optional("--repeats", flags->repeats, "repeats of each measurement (default 7)", "N");
  command.flag("--fingerprint", flags->fingerprint, "what this program computes in f32, as numbers: equal numbers, equal bits");
  flags->machine.add(command);
  command.footer(
      "The limit of decoding is the time to read every weight a byte is multiplied with, measured in the same run: no single text can be\n"
      "decoded faster unless the caches keep weights from one iteration to the next. That of training is one large matrix product.\n"
      "Stages of a training step: data (bytes made and hashed), attention (its projections) and its recurrence, memory (the n-gram rows),\n"
      "experts, readout and head with the losses, loop (norms, gates, the dense path, the sum), update (clearing gradients, the optimizer) "
      "and retraction.\n"
      "Examples:\n"
      "  dormouse speed runs/a\n"
      "  dormouse speed model.dmexp --batch 16 --json\n"
      "  dormouse speed --preset small --train --batch 4");
  command.action(context, [flags] { return run(*flags); });
}

}  // namespace dormouse::cli
