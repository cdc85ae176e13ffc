#include "train/banner.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/units.h"
#include "base/version.h"
#include "evaluate/anchors.h"
#include "ops/cpu_level.h"

namespace dormouse::train {
namespace {

constexpr std::uint64_t kLargestFit = 32U << 20, kLargestCompressed = 8U << 20, kLargestLongOrders = 4U << 20;

std::string count(std::int64_t n) { return base::human_count(static_cast<std::uint64_t>(n)); }

// A path as it can be typed after a command.
std::string shell_word(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("./_-+=:,@").find(c) != std::string_view::npos;
  });
  if (plain && !text.empty() && text[0] != '-') return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

struct AnchorLine {
  std::string name;
  double bpb = 0;
};

std::vector<AnchorLine> parse_anchors(const std::string& text) {
  std::vector<AnchorLine> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const auto space = line.rfind(' ');
    if (space != std::string::npos) lines.push_back({line.substr(0, space), std::strtod(line.c_str() + space + 1, nullptr)});
  }
  return lines;
}

const AnchorLine* best_of(const std::vector<AnchorLine>& lines, std::string_view prefix) {
  const AnchorLine* best = nullptr;
  for (const auto& line : lines) {
    if (line.name.starts_with(prefix) && std::isfinite(line.bpb) && (best == nullptr || line.bpb < best->bpb)) best = &line;
  }
  return best;
}

std::string length_text(const TrainConfig& train) {
  if (train.steps > 0) {
    return fmt::format("{} steps of {} bytes", count(train.steps), count(train.batch * train.accum * train.seq_len));
  }
  return fmt::format("{} of training (longer: --time-limit 1h, or --steps N)", base::human_duration(train.time_limit));
}

}  // namespace

void print_banner(const RunDirectory& directory, const RunConfig& config, const RunData& data, const MemoryPlan& plan, Trainer& trainer,
                  std::uint64_t windows_in_epoch) {
  const auto& train = config.train;
  base::log_line(fmt::format("dormouse {} ({})  run {}", base::version(), base::commit(), base::escape(directory.name())));
  base::log_line(fmt::format("  model    {}: {} parameters, depth {}, d {}, rows of {} bytes; {}", base::escape(config.run.preset),
                             count(parameter_count(config.model)), config.model.max_iter, config.model.d_model, train.seq_len,
                             trainer.optimizer().summary()));
  base::log_line(fmt::format("  machine  {} threads, CPU level {}, products in {} by {}", base::threads(), ops::cpu_level(), train.compute,
                             ops::gemm_library()));
  base::log_line("  " + plan.text());
  base::log_line(
      fmt::format("  data     {}: {}; an epoch is {} windows, {} steps", base::escape(config.data.path), data.found,
                  base::human_count(windows_in_epoch),
                  base::human_count(std::max<std::uint64_t>(1, windows_in_epoch / static_cast<std::uint64_t>(train.batch * train.accum)))));
  base::log_line(fmt::format("  held out {} of {} ({})", base::human_bytes(data.window.size()), base::human_bytes(data.held_out_bytes),
                             base::escape(config.data.held_out, 120)));
  base::log_line(fmt::format("  length   {}", length_text(train)));
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

std::string compute_anchors(const RunData& data) {
  if (data.train.bytes > kLargestFit) return "";
  evaluate::AnchorOptions options;
  options.max_order = data.train.bytes > kLargestLongOrders ? 5 : 8;
  options.compressors = data.train.bytes <= kLargestCompressed;
  const auto fit = data::read_corpus(data.train);
  std::string text;
  for (const auto& anchor : evaluate::anchors(fit, data.window, options)) {
    if (std::isfinite(anchor.bpb)) text += fmt::format("{} {}\n", anchor.name, anchor.bpb);
  }
  return text;
}

void print_anchors(const std::string& anchors, std::int64_t window_bytes) {
  const auto lines = parse_anchors(anchors);
  const auto* kneser_ney = best_of(lines, "kneser-ney");
  if (kneser_ney == nullptr) {
    base::log_line("  to beat  not computed (corpus above 32 MiB): dormouse anchors HELD_OUT --fit PATH");
    return;
  }
  std::string compressors;
  for (const auto& line : lines) {
    if (line.name.ends_with("conditional")) compressors += fmt::format(", {} {:.3f}", line.name, line.bpb);
  }
  base::log_line(
      fmt::format("  to beat  {} {:.3f} BPB on the same {} bytes{}", kneser_ney->name, kneser_ney->bpb, count(window_bytes), compressors));
}

void print_summary(const RunDirectory& directory, const RunConfig& config, const Progress& progress, std::int64_t window_bytes) {
  const auto lines = parse_anchors(progress.anchors);
  base::log_line(fmt::format("done: {} steps in {}, held-out BPB {:.4f} over {} B (best {:.4f} at step {})", count(progress.step),
                             base::human_duration(progress.elapsed), progress.last_bpb, count(window_bytes), progress.best_bpb,
                             progress.best_step));
  if (!lines.empty()) {
    std::vector<AnchorLine> shown;
    for (const auto& name : {std::string("uniform"), std::string("unigram"), std::string("kneser-ney 3")}) {
      for (const auto& line : lines) {
        if (line.name == name) shown.push_back(line);
      }
    }
    if (const auto* best = best_of(lines, "kneser-ney"); best != nullptr && best->name != "kneser-ney 3") shown.push_back(*best);
    for (const auto& line : lines) {
      if (line.name.ends_with("conditional")) shown.push_back(line);
    }
    shown.push_back({"this model", progress.last_bpb});
    std::stable_sort(shown.begin(), shown.end(), [](const auto& a, const auto& b) { return a.bpb > b.bpb; });
    for (const auto& line : shown)
      base::log_line(fmt::format("  {:<24} {:.4f}{}", line.name, line.bpb, line.name == "this model" ? "  <--" : ""));
  }
  const std::string run = shell_word(directory.name());
  base::log_line(fmt::format("files: {}/ (checkpoint.safetensors, best.safetensors, config.toml, metrics.jsonl, log.txt)", run));
  base::log_line(fmt::format("next:  dormouse generate {} -p \"Once upon a time\" -n 300", run));
  if (config.train.steps > 0 || progress.finished()) {
    base::log_line(
        fmt::format("       dormouse train --run {} --extend {}    (more training)", run, std::max<std::int64_t>(1, progress.step / 2)));
  }
}

}  // namespace dormouse::train
