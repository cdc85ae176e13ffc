#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "decode/generate.h"
#include "decode/printer.h"
#include "decode/speed.h"
#include "network/dormouse/weights.h"
#include "report/metrics.h"

namespace dormouse::cli {
namespace {

constexpr std::size_t kLongestPrompt = 1U << 30;

struct Flags {
  std::string model, prompt, file, bytes = "256", temperature = "0.8", top_k = "0", top_p = "1", min_p = "0", penalty = "1", depth, seed;
  std::vector<std::string> stops;
  bool escapes = false, raw = false, stats = false;
  Machine machine;
};

// \n \t \r \0 \\ \xHH
std::string unescape(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (c == 'n') {
      out += '\n';
    } else if (c == 't') {
      out += '\t';
    } else if (c == 'r') {
      out += '\r';
    } else if (c == '0') {
      out += '\0';
    } else if (c == 'x' && i + 2 < text.size() && std::isxdigit(static_cast<unsigned char>(text[i + 1])) != 0 &&
               std::isxdigit(static_cast<unsigned char>(text[i + 2])) != 0) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else if (c == '\\') {
      out += '\\';
    } else {
      throw base::UsageError(
          fmt::format("-e: unknown escape \\{} in the prompt; known are \\n \\t \\r \\0 \\\\ \\xHH", base::escape({&c, 1})));
    }
  }
  return out;
}

std::string read_prompt(const Command& command, const Flags& flags) {
  if (command.given("-f")) {
    if (flags.file == "-") {
      std::string text;
      char buffer[4096];
      for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) {
        text.append(buffer, n);
        if (text.size() > kLongestPrompt)
          throw base::Error(fmt::format("stdin goes on beyond {} bytes; give a shorter prompt", kLongestPrompt));
      }
      if (std::ferror(stdin) != 0) throw base::Error(fmt::format("cannot read the prompt from stdin: {}", std::strerror(errno)));
      return text;
    }
    const auto bytes = base::read_file(flags.file, kLongestPrompt);
    return {bytes.begin(), bytes.end()};
  }
  return flags.escapes ? unescape(flags.prompt) : flags.prompt;
}

std::uint64_t read_seed(const Flags& flags) {
  if (!flags.seed.empty()) return static_cast<std::uint64_t>(base::parse_count(flags.seed, "--seed", 0));
  return std::random_device{}();
}

decode::SamplerConfig sampler_config(const Flags& flags) {
  decode::SamplerConfig config;
  config.temperature = base::parse_number(flags.temperature, "--temp");
  config.top_k = base::parse_count(flags.top_k, "--top-k");
  config.top_p = base::parse_number(flags.top_p, "--top-p");
  config.min_p = base::parse_number(flags.min_p, "--min-p");
  config.repeat_penalty = base::parse_number(flags.penalty, "--repeat-penalty");
  decode::validate(config);
  return config;
}

int run(const Command& command, const Flags& flags) {
  const std::int64_t bytes = flags.bytes == "-1" ? -1 : base::parse_count(flags.bytes, "-n", 0);
  const auto sampling = sampler_config(flags);
  const std::uint64_t seed = read_seed(flags);
  const std::string prompt = read_prompt(command, flags);
  flags.machine.apply();
  const auto weights = network::read_weights(network::load_export(flags.model));
  const std::int64_t depth = flags.depth.empty() ? 0 : base::parse_count(flags.depth, "--depth", 1);
  decode::Lanes lanes(weights, 1, depth);
  decode::Sampler sampler(sampling, seed);
  if (!flags.machine.json) base::log_line(fmt::format("seed {}, weights of step {}", seed, weights.step));

  const bool terminal = isatty(STDOUT_FILENO) != 0;
  std::string collected;
  decode::Printer printer(flags.raw || flags.machine.json, [&](std::string_view text) {
    if (flags.machine.json) {
      collected += text;
    } else {
      print(std::string(text));
    }
  });
  if (terminal && !flags.machine.json) {
    for (const char c : prompt) printer.put(static_cast<std::uint8_t>(c));
  }
  decode::StopWatch stops(flags.stops);
  const auto release = [&](const std::string& text) {
    for (const char c : text) printer.put(static_cast<std::uint8_t>(c));
  };
  const std::vector<std::uint8_t> start(prompt.begin(), prompt.end());
  bool stopped = false;
  const auto stats = decode::generate(lanes, 0, sampler, start, bytes, [&](std::uint8_t byte) {
    std::string out;
    stopped = stops.put(byte, out);
    release(out);
    return !stopped;
  });
  if (!stopped) release(stops.rest());
  printer.finish();
  if (terminal && !flags.machine.json) print("\n");
  const double rate = stats.write_seconds > 0 ? static_cast<double>(stats.written_bytes) / stats.write_seconds : 0;
  const double limit = flags.stats ? 1 / decode::reading_seconds(weights, depth) : 0;
  if (flags.machine.json) {
    std::vector<report::Metric> metrics = {{"text", collected},
                                           {"seed", static_cast<std::int64_t>(seed)},
                                           {"step", weights.step},
                                           {"prompt_bytes", stats.prompt_bytes},
                                           {"bytes", stats.written_bytes},
                                           {"stopped", stopped},
                                           {"prompt_seconds", stats.prompt_seconds},
                                           {"seconds", stats.write_seconds}};
    if (flags.stats) metrics.push_back({"limit_bytes_per_second", limit});
    print(report::to_json(metrics) + "\n");
  } else if (flags.stats) {
    std::string line = fmt::format("read {} bytes in {:.3f} s, wrote {} bytes in {:.3f} s", stats.prompt_bytes, stats.prompt_seconds,
                                   stats.written_bytes, stats.write_seconds);
    constexpr std::int64_t kFewBytes = 16;  // the first of them costs no step
    if (stats.written_bytes >= kFewBytes)
      line += fmt::format(" ({:.0f} bytes/s, {:.0f}% of the {:.0f} that reading its weights allows here)", rate, 100 * rate / limit, limit);
    base::log_line(line);
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  Command command(app, "generate", "let a model write");
  command.required("model,-m,--model", flags->model, "export (.dmexp), or a run directory: its model.dmexp", "MODEL");
  command.optional("-p,--prompt", flags->prompt, "text to continue", "TEXT");
  command.flag("-e,--escapes", flags->escapes, "the prompt holds \\n, \\t, \\xHH");
  command.optional("-f,--file", flags->file, "file to continue, - for stdin", "FILE");
  command.exclude("--file", "--prompt");
  command.optional("-n,--bytes", flags->bytes, "bytes to write, -1: until stopped (default 256)", "BYTES");
  command.optional("--temp", flags->temperature, "temperature, 0 = always the likeliest byte (default 0.8)", "X");
  command.optional("--top-k", flags->top_k, "only the K likeliest bytes, 0 = off", "K");
  command.optional("--top-p", flags->top_p, "only the likeliest bytes that reach this probability, 1 = off", "P");
  command.optional("--min-p", flags->min_p, "only bytes above this share of the likeliest, 0 = off", "P");
  command.optional("--repeat-penalty", flags->penalty, "against bytes among the last 64, 1 = off", "X");
  command.optional("--stop", flags->stops, "end before this text (repeatable)", "TEXT");
  command.optional("--depth", flags->depth, "loop iterations (default: all)", "N");
  command.optional("-s,--seed", flags->seed, "of the sampling (default: random, printed)", "N");
  command.flag("--raw", flags->raw, "bytes exactly as the model wrote them");
  command.flag("--stats", flags->stats, "print speed at the end, beside the limit of this machine");
  flags->machine.add(command, false);
  command.footer(
      "Examples:\n"
      "  dormouse generate runs/a -p \"Once upon a time\" -n 500\n"
      "  dormouse generate runs/a -f letter.txt --temp 0 --stop \"\\n\"\n"
      "  echo -n \"Dear \" | dormouse generate runs/a -f - -s 7 --raw > out.bin");
  command.action(context, [command, flags] { return run(command, *flags); });
}

}  // namespace dormouse::cli
