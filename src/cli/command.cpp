#include "cli/command.h"

#include <utility>

#include <CLI/CLI.hpp>

namespace dormouse::cli {
namespace {

template <class Value>
CLI::Option* add(CLI::App& app, const std::string& names, Value& to, const std::string& help, const std::string& type) {
  return app.add_option(names, to, help)->type_name(type);
}

}  // namespace

Command::Command(CLI::App& app, const std::string& name, const std::string& help) : app_(app.add_subcommand(name, help)) {}

void Command::optional(const std::string& names, std::string& to, const std::string& help, const std::string& type) {
  add(*app_, names, to, help, type);
}

void Command::optional(const std::string& names, std::vector<std::string>& to, const std::string& help, const std::string& type) {
  add(*app_, names, to, help, type)->allow_extra_args(false);  // one value each time
}

void Command::required(const std::string& names, std::string& to, const std::string& help, const std::string& type) {
  add(*app_, names, to, help, type)->required();
}

void Command::required(const std::string& names, std::vector<std::string>& to, const std::string& help, const std::string& type) {
  add(*app_, names, to, help, type)->required();
}

void Command::flag(const std::string& names, bool& to, const std::string& help) { app_->add_flag(names, to, help); }

void Command::exclude(const std::string& name, const std::string& other) { app_->get_option(name)->excludes(app_->get_option(other)); }

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::action(Context& context, std::function<int()> work) {
  app_->callback([&context, work = std::move(work)] { context.action = work; });
}

bool Command::given(const std::string& name) const { return app_->count(name) > 0; }

}  // namespace dormouse::cli
