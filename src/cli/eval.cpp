#include <memory>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/held_out.h"
#include "data/corpus.h"
#include "evaluate/bpb.h"
#include "network/dormouse/model_file.h"
#include "report/metrics.h"

namespace dormouse::cli {
namespace {

constexpr std::int64_t kDefaultBytes = 1 << 20;

struct Flags {
  std::string model, data, bytes, seq_len;
  bool depths = false;
  Machine machine;
};

Window read_window(const Flags& flags, const network::ModelConfig& model, std::int64_t limit) {
  if (!flags.data.empty()) {
    const auto corpus = data::find_corpus(flags.data);
    Window window{data::read_corpus(corpus, static_cast<std::uint64_t>(limit)), base::escape(flags.data)};
    if (const auto remark = seen_in_training(flags.model, corpus, window); !remark.empty()) base::log_line(remark);
    if (window.bytes.size() < corpus.bytes) {
      window.name = fmt::format("the first {} bytes of {}", base::human_count(window.bytes.size()), window.name);
    }
    return window;
  }
  auto window =
      held_out_window(flags.model, model, flags.bytes.empty() ? 0 : limit, "bring the files back, or score another text with --data");
  if (!window) throw base::UsageError("what should it be scored on? give --data PATH");
  return *std::move(window);
}

int run(const Flags& flags) {
  flags.machine.apply();
  const std::int64_t limit = flags.bytes.empty() ? kDefaultBytes : base::parse_count(flags.bytes, "--bytes", 2);
  auto model = network::load_model(flags.model);
  const auto window = read_window(flags, model.config, limit);
  evaluate::BpbOptions options;
  options.row = flags.seq_len.empty() ? model.config.max_seq_len : base::parse_count(flags.seq_len, "--seq-len", 1, 1 << 20);
  options.compute = flags.machine.compute_type();
  const auto start = base::Clock::now();
  std::string doing = fmt::format("scoring rows of {} bytes", options.row);
  options.progress = [&](double share) {
    constexpr double kQuiet = 2;  // seconds
    if (base::seconds_since(start) > kQuiet) base::show_progress(share, doing);
  };
  const auto result = evaluate::bits_per_byte(model.config, model.parameters, window.bytes, options);
  std::vector<report::Metric> metrics = {{"bpb", result.bpb},       {"rec_bpb", result.rec_bpb}, {"bytes", result.bytes},
                                         {"scored", result.scored}, {"row", options.row},        {"step", model.step}};
  std::string text =
      fmt::format("bpb {:.4f}  rec {:.4f}  over {} B of {} (rows of {} bytes, zero state each; step {})\n", result.bpb, result.rec_bpb,
                  base::human_count(static_cast<std::uint64_t>(result.bytes)), window.name, options.row, model.step);
  if (flags.depths) {
    doing = "scoring every depth";
    for (const auto& point : evaluate::depth_curve(model.config, model.parameters, window.bytes, options)) {
      text += fmt::format("depth {:>3}  {:.4f}\n", point.depth, point.bpb);
      metrics.emplace_back(fmt::format("bpb_depth_{}", point.depth), point.bpb);
    }
  }
  // Decoding goes where training did not: rows four times as long, the state carried on.
  evaluate::BpbOptions longer = options;
  longer.row = 4 * options.row;
  doing = fmt::format("scoring rows of {} bytes", longer.row);
  const auto far = evaluate::bits_per_byte(model.config, model.parameters, window.bytes, longer);
  text += fmt::format("by position in rows of {} bytes, four times as long, as decoding goes on where training stopped:\n", longer.row);
  for (const auto& bucket : evaluate::position_buckets(far)) {
    text += fmt::format("  {:>6} .. {:<6} {:.4f}\n", bucket.begin, bucket.end - 1, bucket.bpb);
    metrics.emplace_back(fmt::format("bpb_at_{}_{}", bucket.begin, bucket.end), bucket.bpb);
  }
  base::clear_progress();
  print(flags.machine.json ? report::to_json(metrics) + "\n" : text);
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  Command command(app, "eval", "bits per byte of a model on a text");
  command.required("model,-m,--model", flags->model, "run directory, checkpoint or export", "MODEL");
  command.optional("--data", flags->data, "text to score (default for a run: its held-out text)", "PATH");
  command.optional("--bytes", flags->bytes, "score at most N bytes (default 1Mi)", "N");
  command.optional("--seq-len", flags->seq_len, "bytes per row (default: the model's longest)", "T");
  command.flag("--depths", flags->depths, "also at every depth");
  flags->machine.add(command);
  command.footer(
      "Examples:\n  dormouse eval runs/a --data other.txt\n  dormouse eval runs/a/best.safetensors --data other.txt --depths --json");
  command.action(context, [flags] { return run(*flags); });
}

}  // namespace dormouse::cli
