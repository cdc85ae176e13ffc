#include <memory>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "report/history.h"
#include "report/metrics.h"
#include "report/panel.h"
#include "report/plot.h"
#include "train/signals.h"

namespace dormouse::cli {
namespace {

struct Flags {
  std::vector<std::string> runs;
  std::string out = "plot.html";
  bool json = false;
};

// Runs of one name are told apart by the paths that were typed.
void make_names_distinct(std::vector<report::History>& histories, const std::vector<std::string>& paths) {
  std::multiset<std::string> names;
  for (const auto& history : histories) names.insert(history.name);
  for (std::size_t i = 0; i < histories.size(); ++i) {
    if (names.count(histories[i].name) > 1) histories[i].name = paths[i];
  }
}

std::string left_out(const report::History& history) {
  std::string text;
  const auto add = [&](std::uint64_t n, std::string_view noun, std::string_view rest) {
    if (n > 0) text += fmt::format("{}{} {}{}{}", text.empty() ? "" : ", ", base::human_count(n), noun, n == 1 ? "" : "s", rest);
  };
  add(history.torn_bytes, "byte", " of an unfinished last line left out");
  add(static_cast<std::uint64_t>(history.unreadable), "unreadable line", " left out");
  add(static_cast<std::uint64_t>(history.missing), "missing value", "");
  return text;
}

int run(const Flags& flags) {
  train::watch_signals();
  if (flags.runs.size() > report::kMostRuns) {
    throw base::UsageError(fmt::format("{} runs in one plot; at most {} can be told apart", flags.runs.size(), report::kMostRuns));
  }
  if (flags.json && flags.out == "-") throw base::UsageError("--out - and --json both write to stdout; leave one of them out");
  std::vector<report::History> histories;
  std::int64_t steps = 0, evals = 0, torn = 0, unreadable = 0, missing = 0, repeated = 0;
  for (const auto& path : flags.runs) {
    histories.push_back(report::read_history(path));
    const auto& history = histories.back();
    steps += static_cast<std::int64_t>(history.steps.size());
    evals += static_cast<std::int64_t>(history.evals.size());
    torn += static_cast<std::int64_t>(history.torn_bytes);
    unreadable += history.unreadable;
    missing += history.missing;
    repeated += history.repeated;
  }
  make_names_distinct(histories, flags.runs);
  const std::string picture = flags.out.ends_with(".svg") ? report::plot_svg(histories) : report::plot_html(histories);
  if (flags.out == "-") {
    print(picture);
  } else {
    base::write_file_atomically(flags.out, picture);
  }
  for (const auto& history : histories) {
    if (const auto text = left_out(history); !text.empty()) base::log_line(fmt::format("{}: {}", base::escape(history.name), text));
  }
  base::log_line(fmt::format("{}: {} run{}, {} log lines, {} evaluations", flags.out == "-" ? "stdout" : base::escape(flags.out),
                             histories.size(), histories.size() == 1 ? "" : "s", base::human_count(static_cast<std::uint64_t>(steps)),
                             base::human_count(static_cast<std::uint64_t>(evals))));
  if (!flags.json) return 0;
  const std::vector<report::Metric> metrics = {{"file", flags.out},  {"runs", static_cast<std::int64_t>(histories.size())},
                                               {"steps", steps},     {"evals", evals},
                                               {"torn_bytes", torn}, {"unreadable", unreadable},
                                               {"missing", missing}, {"repeated", repeated}};
  print(report::to_json(metrics) + "\n");
  return 0;
}

}  // namespace

void add_plot(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  Command command(app, "plot", "draw runs over each other: BPB with the anchors, loss, learning rate, gradient norm, speed");
  command.required("runs", flags->runs, "run directories, finished or in progress", "RUN");
  command.optional("-o,--out", flags->out, "the file to write (default plot.html): a page, an SVG when the name ends in .svg, - is stdout",
                   "FILE");
  command.flag("--json", flags->json, "print one JSON object");
  command.footer("Examples:\n  dormouse plot runs/a\n  dormouse plot runs/a runs/b -o compared.svg");
  command.action(context, [flags] { return run(*flags); });
}

}  // namespace dormouse::cli
