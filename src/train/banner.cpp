#include "train/banner.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/shell.h"
#include "base/threads.h"
#include "base/units.h"
#include "base/version.h"
#include "ops/cpu_level.h"
#include "train/standing.h"

namespace dormouse::train {
namespace {

// The first names of `lines`, one per line, as "a, b, ...".
std::string one_line(const std::string& lines) {
  constexpr std::size_t kWidth = 120;
  std::string text;
  std::istringstream names(lines);
  for (std::string name; std::getline(names, name);) {
    if (text.size() + name.size() > kWidth && !text.empty()) return text + ", ...";
    text += (text.empty() ? "" : ", ") + base::escape(name);
  }
  return text;
}

std::string count(std::int64_t n) { return base::human_count(static_cast<std::uint64_t>(n)); }
std::string count(std::int64_t n, std::string_view noun) { return base::human_count(static_cast<std::uint64_t>(n), noun); }

std::string length_text(const TrainConfig& train) {
  if (train.steps > 0) {
    return fmt::format("{} of {}", count(train.steps, "step"), count(train.batch * train.accum * train.seq_len, "byte"));
  }
  return fmt::format("{} of training (a longer new run: --time-limit 1h, or --steps N)", base::human_duration(train.time_limit));
}

std::string model_text(const RunConfig& config) {
  return fmt::format("{}: {} parameters, depth {}, d {}, rows of {} bytes", base::escape(config.run.preset),
                     count(parameter_count(config.model)), config.model.max_iter, config.model.d_model, config.train.seq_len);
}

std::string files_of(const RunDirectory& directory) {
  std::string text;
  for (const char* name : {"model.dmexp", "checkpoint.safetensors", "best.safetensors", "config.toml", "metrics.jsonl", "log.txt"}) {
    std::error_code ignored;
    if (std::filesystem::exists(directory.root / name, ignored)) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

// "1,200 steps", "900 of 3,020 steps", "133 steps (of a run of 5m 00s)"
std::string steps_text(const TrainConfig& train, const Progress& progress) {
  if (progress.finished()) return count(progress.step, "step");
  if (train.steps > 0) return fmt::format("{} of {}", count(progress.step), count(train.steps, "step"));
  return fmt::format("{} (of a run of {})", count(progress.step, "step"), base::human_duration(train.time_limit));
}

}  // namespace

void print_banner(const RunDirectory& directory, const RunConfig& config, const RunData& data, const MemoryPlan& plan, Trainer& trainer,
                  std::uint64_t windows_in_epoch) {
  const auto& train = config.train;
  base::log_line(fmt::format("dormouse {} ({})  run {}", base::version(), base::commit(), base::escape(directory.name())));
  base::log_line(fmt::format("  model    {}; {}", model_text(config), trainer.optimizer().summary()));
  base::log_line(fmt::format("  machine  {}, CPU level {}, products in {} by {}", count(base::threads(), "thread"), ops::cpu_level(),
                             train.compute == "i16" ? "i16, narrow ones in f32" : train.compute, ops::gemm_library()));
  base::log_line("  memory   " + plan.text());
  base::log_line(
      fmt::format("  data     {}: {}; an epoch is {} windows, {} steps", base::escape(config.data.path), data.found,
                  base::human_count(windows_in_epoch),
                  base::human_count(std::max<std::uint64_t>(1, windows_in_epoch / static_cast<std::uint64_t>(train.batch * train.accum)))));
  const std::string overlap = overlap_text(data.train, data.window);
  base::log_line(fmt::format("  held out {} of {} ({}){}", base::human_bytes(data.window.size()), base::human_bytes(data.held_out_bytes),
                             one_line(config.data.held_out), overlap.empty() ? "" : "; " + overlap));
  base::log_line(fmt::format("  length   {}", length_text(train)));
}

void print_hints(const RunConfig& config, std::uint64_t text_bytes) {
  constexpr std::int64_t kRows = 262144, kFewRows = kRows / 8;
  constexpr std::uint64_t kText = 1U << 19;  // texts of 1 and 2 MB: docs/decisions/0013-memory-reset.md
  if (config.model.use_engram && config.model.engram_rows <= kFewRows && text_bytes >= kText) {
    RunConfig larger = config;
    larger.model.engram_rows = kRows;
    const std::uint64_t more = plan_memory(larger, 0).total() - plan_memory(config, 0).total();
    base::log_line(
        fmt::format("  hint     --set engram_rows={} --set engram_orders=3,4,5 learns more from such a text in as many steps "
                    "({} more memory, larger files)",
                    kRows, base::human_bytes(more)));
  }
  constexpr std::int64_t kWideRank = 64, kWideModel = 512;  // `nano` and larger: docs/decisions/0012-i16-products.md
  const bool faster = ops::native_vnni() || ops::cpu_level() == "avx2";
  if (config.train.compute == "f32" && faster && config.model.rank >= kWideRank && config.model.d_model >= kWideModel)
    base::log_line(
        fmt::format("  hint     --compute i16 takes {} less time a step here", ops::native_vnni() ? "about a quarter" : "a little"));
}

void log_preamble(const Request& request, const RunConfig& config, Trainer& trainer) {
  base::log_file_line("command: " + base::escape(request.command, 4096));
  base::log_file_line(fmt::format("program: dormouse {} commit {} compiler {} gemm {} cpu {} threads {}", base::version(), base::commit(),
                                  base::compiler(), ops::gemm_library(), ops::cpu_level(), base::threads()));
  for (const auto& text : {write_config(config), trainer.optimizer().routing_table()}) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) base::log_file_line(line);
  }
}

std::string description(const RunConfig& config) {
  return fmt::format("  model    {}\n  data     {}, held out {}", model_text(config), base::escape(config.data.path),
                     one_line(config.data.held_out));
}

std::string summary(const RunDirectory& directory, const RunConfig& config, const Progress& progress) {
  const std::string run = base::shell_word(directory.name()), dormouse = base::program();
  const bool done = progress.finished() && progress.last_eval_step == progress.step;
  std::string text =
      fmt::format("{}: {} in {}, ", done ? "done" : "so far", steps_text(config.train, progress), base::human_duration(progress.elapsed));
  const auto line = [&](const std::string& words) { text += "\n" + words; };
  const bool judged = progress.last_eval_step >= 0;
  const std::string best = progress.best_step < 0 ? "" : fmt::format("best {:.4f} at step {}", progress.best_bpb, progress.best_step);
  if (judged) {
    const std::string window = progress.window > 0 ? fmt::format(" over {} B", count(progress.window)) : "";
    text += fmt::format("held-out BPB {:.4f}{} ({})", progress.last_bpb, window, best);
    line(standing(progress.anchors, progress.last_bpb));
  } else {
    text += best.empty() ? "not evaluated yet" : "held-out BPB not evaluated since --extend (" + best + ")";
  }
  line(fmt::format("files: {} ({})", base::shell_word((directory.root / "").string()), files_of(directory)));
  constexpr double kWorse = 0.005;  // bits per byte; a smaller rise says nothing
  const bool worse = progress.last_eval_step > progress.best_step && progress.last_bpb - progress.best_bpb > kWorse;
  if (worse) {
    line(fmt::format("best:  the held-out BPB rose after step {}, whose weights are kept: {} export {} --best", count(progress.best_step),
                     dormouse, run));
    line(fmt::format("       (rather more text, or a new --run with --steps {}, than a longer run)", progress.best_step));
  }
  if (!done) {
    line(fmt::format("next:  {}    (goes on)", resume_command(directory)));
    return text;
  }
  line(fmt::format("next:  {} generate {} -p \"Once upon a time\" -n 300", dormouse, run));
  if (!worse) {
    line(fmt::format("       {} --extend {}    (more training)", resume_command(directory), std::max<std::int64_t>(1, progress.step / 2)));
  }
  return text;
}

}  // namespace dormouse::train
