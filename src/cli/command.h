// A subcommand and its flags, declared. Values are text, which each command parses itself; the parser behind it, CLI11, is seen by
// command.cpp and main.cpp alone, since every source that sees it takes long to compile.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace dormouse::cli {

// What main runs after parsing: the chosen subcommand's work, returning the exit code.
struct Context {
  std::string command_line;  // as typed
  std::function<int()> action;
};

// Names are written as "-t,--threads", and "path" or "model,-m,--model" for what may stand without a flag; `type` is what help shows for
// the value. What values are stored in must outlive the parsing.
class Command {
 public:
  Command(CLI::App& app, const std::string& name, const std::string& help);

  void optional(const std::string& names, std::string& to, const std::string& help, const std::string& type);
  void optional(const std::string& names, std::vector<std::string>& to, const std::string& help, const std::string& type);  // repeatable
  void required(const std::string& names, std::string& to, const std::string& help, const std::string& type);
  void required(const std::string& names, std::vector<std::string>& to, const std::string& help, const std::string& type);
  void flag(const std::string& names, bool& to, const std::string& help);
  void exclude(const std::string& name, const std::string& other);  // both declared before; given together they are refused
  void footer(const std::string& text);
  void action(Context& context, std::function<int()> work);

  bool given(const std::string& name) const;  // after parsing

 private:
  CLI::App* app_;
};

}  // namespace dormouse::cli
