// The subcommands: each parses its own flags, calls one room, prints.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"
#include "ops/ops.h"
#include "train/config.h"

namespace dormouse::cli {

// Flags every command that computes understands.
struct Machine {
  std::string threads, compute, cpu;
  bool json = false;

  std::int64_t thread_count() const;  // --threads, 0: not given
  void add(Command& command, bool with_compute = true);
  void apply() const;  // CPU level, then threads
  void apply_cpu_level() const;
  ops::Compute compute_type() const;  // train::compute_of --compute
};

void add_train(CLI::App& app, Context& context);
void add_eval(CLI::App& app, Context& context);
void add_logits(CLI::App& app, Context& context);
void add_generate(CLI::App& app, Context& context);
void add_anchors(CLI::App& app, Context& context);
void add_export(CLI::App& app, Context& context);
void add_info(CLI::App& app, Context& context);
void add_plot(CLI::App& app, Context& context);
void add_compress(CLI::App& app, Context& context);  // and decompress
void add_speed(CLI::App& app, Context& context);

// "--set key=value" as typed.
train::Typed typed_set(const std::string& text);

void print(const std::string& text);  // stdout; a broken pipe ends the process quietly

}  // namespace dormouse::cli
