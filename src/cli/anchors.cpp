#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "data/corpus.h"
#include "evaluate/anchors.h"
#include "report/metrics.h"

namespace dormouse::cli {
namespace {

struct Flags {
  std::string path, fit, bytes, order;
  Machine machine;
};

struct Texts {
  std::vector<std::uint8_t> fit, text;
};

Texts read_texts(const Flags& flags, std::uint64_t limit) {
  const auto corpus = data::find_corpus(flags.path);
  if (!flags.fit.empty()) {
    data::refuse_overlap(flags.fit, flags.path);
    return {data::read_corpus(data::find_corpus(flags.fit)), data::read_corpus(corpus, limit)};
  }
  auto split = data::carve(corpus);
  if (split.held_out.size() > limit) split.held_out.resize(limit);
  return {data::read_corpus(split.train), std::move(split.held_out)};
}

int run(const Flags& flags) {
  flags.machine.apply();
  const auto limit = flags.bytes.empty() ? std::int64_t{256 * 1024} : base::parse_count(flags.bytes, "--bytes", 2);
  evaluate::AnchorOptions options;
  if (!flags.order.empty()) options.max_order = static_cast<int>(base::parse_count(flags.order, "--order", 1, 16));
  const auto texts = read_texts(flags, static_cast<std::uint64_t>(limit));
  base::log_line(fmt::format("fitted on {} B, scored on {} B", base::human_count(texts.fit.size()), base::human_count(texts.text.size())));
  const auto anchors = evaluate::anchors(texts.fit, texts.text, options);
  const auto best = evaluate::best_kneser_ney(anchors);
  std::string text;
  std::vector<report::Metric> metrics = {{"fit_bytes", static_cast<std::int64_t>(texts.fit.size())},
                                         {"bytes", static_cast<std::int64_t>(texts.text.size())}};
  for (const auto& anchor : anchors) {
    const std::string value = std::isfinite(anchor.bpb) ? fmt::format("{:.4f}", anchor.bpb) : "-";
    text += fmt::format("{:<22} {:>8}{}{}\n", anchor.name, value, anchor.note.empty() ? "" : "  " + anchor.note,
                        best && best->name == anchor.name ? "  <-- to beat" : "");
    metrics.emplace_back(anchor.name, anchor.bpb);
  }
  if (best) metrics.emplace_back("best", best->name);
  print(flags.machine.json ? report::to_json(metrics) + "\n" : text);
  return 0;
}

}  // namespace

void add_anchors(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  Command command(app, "anchors", "what n-gram models and compressors reach on a text, in bits per byte");
  command.required("path", flags->path, "text to score; without --fit its held-out share is scored and the rest fitted", "PATH");
  command.optional("--fit", flags->fit, "text to fit on", "PATH");
  command.optional("--bytes", flags->bytes, "score at most N bytes (default 256Ki)", "N");
  command.optional("--order", flags->order, "highest n-gram order (default 8)", "K");
  flags->machine.add(command, false);
  command.footer("Examples:\n  dormouse anchors book.txt\n  dormouse anchors held-out.txt --fit train.txt --order 6");
  command.action(context, [flags] { return run(*flags); });
}

}  // namespace dormouse::cli
