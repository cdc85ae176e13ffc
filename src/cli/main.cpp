#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/shell.h"
#include "base/threads.h"
#include "base/units.h"
#include "base/version.h"
#include "cli/commands.h"
#include "ops/cpu_level.h"
#include "report/metrics.h"

namespace dormouse::cli {
namespace {

std::string version_text() {
  ops::set_cpu_level("");
  return fmt::format("dormouse {} commit {} ({}; CPU level {}; GEMM {})", base::version(), base::commit(), base::compiler(),
                     ops::cpu_level(), ops::gemm_library());
}

std::string nearest_of(const std::string& word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  return base::nearest(word, views.data(), views.size());
}

// The first word no option and no argument wanted: a typo, most likely.
void refuse_extras(const CLI::App& app, const CLI::App& command) {
  auto extras = command.remaining();
  std::erase(extras, "--");  // the mark before paths that begin with a dash
  if (extras.empty()) return;
  const std::string& whole = extras.front();
  const std::string word = whole.substr(0, whole.find('='));
  const bool flag = word.size() > 1 && word[0] == '-';
  const bool top = &app == &command;
  if (!flag && word != whole && command.get_option_no_throw("--set") != nullptr) {
    throw base::UsageError(fmt::format("unexpected argument `{}`; --set takes one KEY=VALUE and is repeated for the next: --set {}",
                                       base::escape(whole), base::shell_word(whole)));
  }
  std::vector<std::string> names;
  if (flag) {
    for (const auto* option : command.get_options()) {
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    }
  } else if (top) {
    for (const auto* sub : command.get_subcommands({})) names.push_back(sub->get_name());
  }
  const std::string near = nearest_of(word, names);
  const auto takes = [&](const char* name) {
    const auto* option = command.get_option_no_throw(name);
    return option != nullptr && option->count() == 0;
  };
  const std::string place = flag || top ? "" : takes("--prompt") ? "--prompt" : takes("--data") ? "--data" : "";
  if (!place.empty()) {
    throw base::UsageError(fmt::format("unexpected argument `{}`; was {} {} meant?", base::escape(whole), place, base::shell_word(whole)));
  }
  const std::string what = flag ? "unknown flag" : (top ? "unknown command" : "unexpected argument");
  throw base::UsageError(fmt::format("{} `{}`{}; see {} {}--help", what, base::escape(word),
                                     near.empty() ? "" : fmt::format(", did you mean `{}`?", near), base::program(),
                                     top ? "" : command.get_name() + " "));
}

void refuse_all_extras(const CLI::App& app) {
  refuse_extras(app, app);
  for (const auto* command : app.get_subcommands()) refuse_extras(app, *command);
}

// An empty value would pass for a flag left out. A prompt may be empty.
void refuse_empty_values(const CLI::App& command) {
  for (const auto* option : command.get_options()) {
    const auto& values = option->results();
    if (option->get_name() != "--prompt" && std::find(values.begin(), values.end(), "") != values.end())
      throw base::UsageError(fmt::format("{} is empty; give it a value", option->get_name()));
  }
}

int fail(const std::string& message, int code, bool json) {
  base::clear_progress();
  if (json) {
    const std::vector<report::Metric> metrics = {{"error", message}};
    std::fputs((report::to_json(metrics) + "\n").c_str(), stdout);
  }
  std::fputs(("error: " + message + "\n").c_str(), stderr);
  return code;
}

// Help or version, through the same print as every result.
int shown(const CLI::App& app, const CLI::Error& call) {
  std::ostringstream text;
  const int code = app.exit(call, text, text);
  print(text.str());
  return code;
}

// CLI11 says "--steps: At Most 1 required but received 2".
std::string mismatch_text(const std::string& what) {
  const auto twice = what.find(": At Most 1 required");
  if (twice == std::string::npos) return base::escape(what, 400);
  if (what.starts_with("--model:"))
    return "the model is given more than once: what stands first without a flag is one too; put -m before it";
  return fmt::format("{} is given more than once; give it once", base::escape(what.substr(0, twice)));
}

// CLI11 says "--model is required" of what is written without a name as well.
std::string missing_text(const CLI::App& command, const std::string& what) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    return fmt::format("{} is missing; {} {} --help shows what to give",
                       option->get_positional() ? option->get_type_name() : option->get_name(), base::program(), command.get_name());
  }
  return base::escape(what, 400);
}

int dispatch(int argc, char** argv, bool& json) {
  CLI::App app("dormouse: byte-level language models on one machine, trained, judged and talking.", "dormouse");
  Context context;
  if (argc > 0) base::set_program(argv[0]);
  for (int i = 0; i < argc; ++i) {
    context.command_line += (i > 0 ? " " : "") + std::string(argv[i]);
    json = json || std::string_view(argv[i]) == "--json";
  }
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", version_text, "version, commit, compiler, CPU level, GEMM library");
  app.footer(
      "Start with:\n"
      "  dormouse train --data my-texts/                 ten minutes on your own files\n"
      "  dormouse generate runs/my-texts-tiny -p \"Once\"  let it talk\n"
      "Each command explains itself: dormouse CMD --help");
  add_train(app, context);
  add_eval(app, context);
  add_generate(app, context);
  add_anchors(app, context);
  add_logits(app, context);
  add_export(app, context);
  add_info(app, context);
  add_compress(app, context);
  add_plot(app, context);
  add_speed(app, context);
  app.allow_extras();
  for (auto* command : app.get_subcommands({})) command->allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& call) {
    refuse_extras(app, app);  // help of a command that there is not
    return shown(app, call);
  } catch (const CLI::CallForVersion& call) {
    return shown(app, call);
  } catch (const CLI::ArgumentMismatch& error) {
    throw base::UsageError(mismatch_text(error.what()));
  } catch (const CLI::RequiredError& error) {
    const auto asked = app.get_subcommands();
    refuse_all_extras(app);  // a mistyped flag rather than the argument that it took
    throw base::UsageError(asked.empty() ? base::escape(error.what(), 400) : missing_text(*asked.front(), error.what()));
  } catch (const CLI::ParseError& error) {
    throw base::UsageError(base::escape(error.what(), 400));
  }
  const auto commands = app.get_subcommands();
  refuse_all_extras(app);
  if (commands.empty()) {
    std::fputs(app.help().c_str(), stderr);
    return 2;
  }
  refuse_empty_values(*commands.front());
  return context.action();
}

}  // namespace
}  // namespace dormouse::cli

int main(int argc, char** argv) {
  dormouse::base::settle_process();
  dormouse::base::shorten_spinning(argv);
  bool json = false;
  try {
    return dormouse::cli::dispatch(argc, argv, json);
  } catch (const dormouse::base::UsageError& error) {
    return dormouse::cli::fail(error.what(), 2, json);
  } catch (const dormouse::base::Error& error) {
    return dormouse::cli::fail(error.what(), 1, json);
  } catch (const std::bad_alloc&) {
    return dormouse::cli::fail("out of memory; give a smaller text, --batch or model, or close other programs", 1, json);
  } catch (const std::exception& error) {
    return dormouse::cli::fail(dormouse::base::escape(error.what(), 400), 1, json);
  }
}
