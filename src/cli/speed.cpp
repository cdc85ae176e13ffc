#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/units.h"
#include "cli/commands.h"
#include "decode/speed.h"
#include "network/dormouse/weights.h"
#include "ops/cpu_level.h"
#include "report/metrics.h"

namespace dormouse::cli {
namespace {

struct Flags {
  std::string model, preset, batch = "8", repeats = "7";
  Machine machine;
};

network::Weights weights_of(const Flags& flags) {
  if (flags.model.empty() == flags.preset.empty())
    throw base::UsageError("speed takes a MODEL (an export or a run directory) or --preset NAME, one of them");
  if (!flags.model.empty()) return network::read_weights(network::load_export(flags.model));
  auto config = network::preset(flags.preset);
  network::validate(config);
  auto parameters = network::make_parameters(config, 1);
  return network::read_weights(parameters, config);
}

int run(const Flags& flags) {
  constexpr std::int64_t kMostStreams = 4096, kMostRepeats = 10'000;
  const std::int64_t streams = count_flag(flags.batch, "--batch", 1, kMostStreams),
                     repeats = count_flag(flags.repeats, "--repeats", 1, kMostRepeats);
  flags.machine.apply();
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
    const auto add = [&](const std::string& key, const decode::Spread& value) {
      metrics.push_back({key, value.median});
      metrics.push_back({key + "_low", value.low});
      metrics.push_back({key + "_high", value.high});
    };
    add("one_bytes_per_second", speed.one);
    add("limit_bytes_per_second", speed.limit);
    metrics.push_back({"share_of_limit", share});
    add("together_bytes_per_second", speed.batch);
    metrics.push_back({"times_one", speed.batch.median / speed.one.median});
    add("prompt_bytes_per_second", speed.prompt);
    print(report::to_json(metrics) + "\n");
    return 0;
  }
  const auto row = [&](const std::string& what, const decode::Spread& value, const std::string& note) {
    return fmt::format("| {:<26} | {:>7.0f} | {:>7.0f} .. {:>7.0f} | {:<41} |\n", what, value.median, value.low, value.high, note);
  };
  print(
      fmt::format("{}: {} thread{}, {}, {} repeats taking turns\n\n", name, base::threads(), base::threads() == 1 ? "" : "s",
                  ops::cpu_level(), repeats) +
      fmt::format("| {:<26} | {:>7} | {:>18} | {:<41} |\n", "decoding", "bytes/s", "lowest .. highest", "") +
      fmt::format("|{:-<28}|{:->8}:|{:-<20}|{:-<43}|\n", "", "", "", "") +
      row("one text", speed.one, fmt::format("{:.0f}% of the limit", 100 * share)) +
      row("limit", speed.limit, fmt::format("reading its weights: {:.1f} MB a byte", static_cast<double>(bytes) / 1e6)) +
      row(fmt::format("{} texts together", streams), speed.batch, fmt::format("{:.2f} times one", speed.batch.median / speed.one.median)) +
      row("reading a prompt", speed.prompt, ""));
  return 0;
}

}  // namespace

void add_speed(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  auto* command = app.add_subcommand("speed", "measure how fast a model decodes here, beside the limit of this machine");
  command->add_option("model,-m,--model", flags->model, "export (.dmexp), or a run directory: its model.dmexp")->type_name("MODEL");
  command->add_option("--preset", flags->preset, "an untrained model of this preset instead")->type_name("NAME");
  command->add_option("--batch", flags->batch, "texts stepped together (default 8)")->type_name("B");
  command->add_option("--repeats", flags->repeats, "repeats of each measurement (default 7)")->type_name("N");
  flags->machine.add(*command, false);
  command->footer(
      "The limit is the time to read every weight a byte is multiplied with, measured in the same run: no single text can be\n"
      "decoded faster unless the caches keep weights from one iteration to the next.\n"
      "Examples:\n"
      "  dormouse speed runs/a\n"
      "  dormouse speed model.dmexp --batch 16 --json");
  command->callback([&context, flags] { context.action = [flags] { return run(*flags); }; });
}

}  // namespace dormouse::cli
