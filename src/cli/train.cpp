#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "train/run.h"

namespace dormouse::cli {
namespace {

enum class Value { count, duration, number, word };

// A flag that sets one key of the config.
struct KeyFlag {
  const char* names;
  const char* key;
  Value value;
  const char* type;
  const char* help;
};

constexpr KeyFlag kKeyFlags[] = {
    {"--steps", "steps", Value::count, "N", "length of the run in steps"},
    {"--time-limit", "time_limit", Value::duration, "D", "length of the run in time: 90s, 10m, 1h30m (default 10m)"},
    {"--batch", "batch", Value::count, "B", "rows per forward pass (default 8)"},
    {"--seq-len", "seq_len", Value::count, "T", "bytes per row (default: the preset's longest)"},
    {"--accum", "accum", Value::count, "K", "forward passes per step (default 1)"},
    {"--lr", "lr", Value::number, "X", "peak learning rate (default by preset)"},
    {"--wd", "wd", Value::number, "X", "weight decay"},
    {"--grad-clip", "grad_clip", Value::number, "X", "largest gradient norm, 0 = off"},
    {"--opt", "opt", Value::word, "NAME", "optimizer: mix-dense (default), mix or adamw"},
    {"--seed", "seed", Value::count, "N", "of the weights and the order of the data (default 1)"},
    {"--log-every", "log_every", Value::count, "N", "steps between log lines (default: about 5 seconds)"},
    {"--eval-every", "eval_every", Value::count, "N",
     "steps between evaluations (default: every tenth of the run, less often where that would take too long)"},
    {"--eval-bytes", "eval_bytes", Value::count, "N", "largest held-out window (default 256Ki)"},
    {"--ckpt-every", "ckpt_every", Value::count, "N", "steps between checkpoints (default: every 10 minutes)"},
    {"--eval-tail", "eval_tail", Value::count, "N", "hold out exactly the last N bytes"},
};

std::string typed_text(const KeyFlag& flag, const std::string& text) {
  const std::string name = flag.names;
  switch (flag.value) {
    case Value::count:
      return std::to_string(base::parse_count(text, name, name == "--seed" ? 0 : 1));
    case Value::duration:
      return fmt::format("{}", base::parse_duration(text, name));
    case Value::number: {
      const double number = base::parse_number(text, name);
      if (name == "--lr" && number <= 0) throw base::UsageError(fmt::format("--lr {}: must be above 0", number));
      return fmt::format("{}", number);
    }
    case Value::word:
      break;
  }
  return text;
}

struct Flags {
  std::string data, eval, preset, config, run, extend;
  std::vector<std::string> set, include, exclude;
  std::map<std::string, std::string> keys;
  bool must_be_new = false, eval_depths = false, tensorboard = false;
  Machine machine;
};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

std::string key_list() {
  constexpr std::size_t kWidth = 120;
  std::string text, line = "Keys of --set and of a --config file:";
  for (const auto key : train::settable_keys()) {
    if (line.size() + key.size() > kWidth) text += std::exchange(line, " ") + "\n";
    line += " " + std::string(key);
  }
  return text + line + "\n";
}

train::Request request_of(const Command& command, const Flags& flags, const Context& context) {
  train::Request request;
  request.command = context.command_line;
  const auto path = [&](const std::string& name, const std::string& text, auto& target) {
    if (command.given(name)) target = text;
  };
  path("--data", flags.data, request.data);
  path("--eval", flags.eval, request.eval);
  path("--config", flags.config, request.config_file);
  path("--run", flags.run, request.run_directory);
  if (command.given("--preset")) request.preset = flags.preset;
  if (command.given("--extend")) request.extend = base::parse_count(flags.extend, "--extend", 1);
  request.must_be_new = flags.must_be_new;
  for (const auto& set : flags.set) request.typed.push_back(typed_set(set));
  for (const auto& flag : kKeyFlags) {
    if (!command.given(flag.names)) continue;
    const auto& text = flags.keys.at(flag.names);
    request.typed.push_back({flag.key, typed_text(flag, text), fmt::format("{} {}", flag.names, text)});
  }
  if (flags.eval_depths) request.typed.push_back({"eval_depths", "true", "--eval-depths"});
  if (flags.tensorboard) request.typed.push_back({"tensorboard", "true", "--tensorboard"});
  if (!flags.include.empty()) request.typed.push_back({"include", joined(flags.include), "--include"});
  if (!flags.exclude.empty()) request.typed.push_back({"exclude", joined(flags.exclude), "--exclude"});
  if (command.given("--threads")) {
    request.typed.push_back({"threads", std::to_string(flags.machine.thread_count()), "--threads " + flags.machine.threads});
  }
  if (command.given("--compute")) {
    static_cast<void>(flags.machine.compute_type());
    request.typed.push_back({"compute", flags.machine.compute, "--compute " + flags.machine.compute});
  }
  return request;
}

}  // namespace

void add_train(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  Command command(app, "train", "train a model on your bytes, or resume a run");
  command.optional("--data", flags->data, "file or folder to learn from: any bytes", "PATH");
  command.optional("--eval", flags->eval, "held-out file or folder (default: a share of --data, never trained on)", "PATH");
  command.optional("--preset", flags->preset, "tiny (default), nano, small, base", "NAME");
  command.optional("--config", flags->config, "a TOML file with [model] and [train] instead of a preset", "FILE");
  command.optional("--set", flags->set, "change one key of the config, e.g. --set d_model=256", "KEY=VALUE");
  command.optional("--run", flags->run, "run directory (default runs/<data>-<preset>)", "DIR");
  for (const auto& flag : kKeyFlags) {
    command.optional(flag.names, flags->keys[flag.names], flag.help, flag.type);
  }
  command.optional("--extend", flags->extend,
                   "make a finished run N steps longer: it goes back to where its learning rate began to fall, and on from there", "N");
  command.flag("--eval-depths", flags->eval_depths, "evaluate at every depth too");
  command.flag("--tensorboard", flags->tensorboard, "write event files for TensorBoard into the run");
  command.flag("--new", flags->must_be_new, "refuse to resume an existing run");
  command.optional("--include", flags->include, "only files matching this glob", "GLOB");
  command.optional("--exclude", flags->exclude, "no files matching this glob", "GLOB");
  flags->machine.add(command);
  command.footer(key_list() +
                 "Examples:\n"
                 "  dormouse train --data book.txt                      ten minutes, preset tiny, in runs/book-tiny\n"
                 "  dormouse train --data notes/ --time-limit 1h --preset nano\n"
                 "  dormouse train --data book.txt --steps 2000 --run runs/a --set engram_rows=65536\n"
                 "  dormouse train --run runs/a                         resume (the same command does too)");
  command.action(context, [&context, command, flags] {
    flags->machine.apply_cpu_level();
    return train::run(request_of(command, *flags, context), flags->machine.json);
  });
}

}  // namespace dormouse::cli
