#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/threads.h"
#include "base/units.h"
#include "cli/commands.h"
#include "ops/cpu_level.h"
#include "train/config.h"

namespace dormouse::cli {

void Machine::add(Command& command, bool with_compute) {
  command.optional("-t,--threads", threads, "threads; default: what affinity and quota give", "N");
  if (with_compute) {
    command.optional("--compute", compute,
                     "input type of matrix products: f32 (default), bf16, or i16, which needs AVX2 and is faster from nano on, but for "
                     "AVX-512 without VNNI",
                     "TYPE");
  }
  command.optional("--cpu", cpu, "highest instruction set to use: scalar, ssse3, sse4, avx2, avx512", "LEVEL");
  command.flag("--json", json, "print results as JSON objects on stdout");
}

void Machine::apply_cpu_level() const { ops::set_cpu_level(cpu); }

void Machine::apply() const {
  apply_cpu_level();
  base::set_threads(static_cast<int>(thread_count()));
}

std::int64_t Machine::thread_count() const { return threads.empty() ? 0 : base::parse_count(threads, "--threads", 1, base::kMostTeam); }

ops::Compute Machine::compute_type() const { return train::compute_of(compute); }

train::Typed typed_set(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw base::UsageError(fmt::format("--set {}: write it as key=value", base::escape(text)));
  return {text.substr(0, equals), text.substr(equals + 1), "--set " + text};
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) std::_Exit(128 + SIGPIPE);  // the reader went away, and SIGPIPE is ignored here
  throw base::Error(fmt::format("cannot write to stdout: {}; send it to another place", std::strerror(errno)));
}

}  // namespace dormouse::cli
