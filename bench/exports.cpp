// bench_exports RUN|CHECKPOINT... --data FILE: what storing a model narrow costs. Every storage type is written as an export, loaded, and
// decoded beside the f32 weights it was made of; prints a Markdown table per model (docs/results.md, `make results`).
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/units.h"
#include "base/version.h"
#include "data/corpus.h"
#include "decode/lanes.h"
#include "decode/sampler.h"
#include "evaluate/agreement.h"
#include "evaluate/bpb.h"
#include "network/dormouse/export.h"
#include "network/dormouse/weights.h"
#include "ops/cpu_level.h"
#include "train/config.h"

namespace {

namespace fs = std::filesystem;
using namespace dormouse;
using Bytes = std::vector<std::uint8_t>;

constexpr std::array<const char*, 5> kTypes = {"f32", "f16", "bf16", "int8", "ternary"};
constexpr std::size_t kLanes = 16, kPromptBytes = 32, kGreedyBytes = 64;
constexpr int kLoads = 5;

struct Flags {
  std::vector<std::string> models;
  std::string data, eval_tail = "100000", prompts = "1000";
  int threads = 0;
};

// A directory that goes away.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "dormouse-exports-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw base::Error("no directory in " + fs::temp_directory_path().string() + "; set TMPDIR");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// A line on stderr every two seconds.
class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  void at(std::size_t done, std::size_t total) {
    if (base::seconds_since(last_) < 2) return;
    last_ = base::Clock::now();
    base::log_line(fmt::format("{}: {} of {}", what_, base::human_count(done), base::human_count(total)));
  }

 private:
  std::string what_;
  base::Clock::time_point last_ = base::Clock::now();
};

struct Row {
  std::string dtype;
  std::uint64_t file_bytes = 0;
  std::size_t memory_bytes = 0;
  double load_ms = 0;
};

// Bytes of what decoding looks up and multiplies with.
std::size_t bytes_of(const network::Weights& weights) {
  std::size_t bytes = weights.embedding.bytes() + (weights.config.use_engram ? weights.engram.table.bytes() : 0);
  for (const auto* matrix : network::loop_matrices(weights)) bytes += matrix->bytes();
  for (const auto* matrix : network::once_matrices(weights)) bytes += matrix->bytes();
  return bytes;
}

// Writes the export and loads it kLoads times; the time is their median. The last one stays.
Row load(network::Model& model, const std::string& dtype, const fs::path& path, std::vector<network::Weights>& loaded) {
  Row row{.dtype = dtype};
  row.file_bytes = format::write_dmexp(
      path, network::export_image(model.parameters, model.config, network::provenance_of(model), dtype, dtype == "ternary"));
  network::Weights weights;
  std::array<double, kLoads> seconds{};
  for (auto& one : seconds) {
    const auto start = base::Clock::now();
    weights = network::read_weights(network::load_export(path));
    one = base::seconds_since(start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kLoads / 2, seconds.end());
  row.load_ms = seconds[kLoads / 2] * 1e3;
  row.memory_bytes = bytes_of(weights);
  loaded.push_back(std::move(weights));
  return row;
}

// The greedy continuations of `count` pieces of the text that begin at even distances, [count][kGreedyBytes].
std::vector<Bytes> greedy(const network::Weights& weights, const Bytes& text, std::size_t count, Progress& progress) {
  decode::Lanes lanes(weights, kLanes);
  decode::Sampler sampler({.temperature = 0}, 0);
  const auto next = [&](std::size_t lane) { return sampler.next(lanes.logits(lane), {}); };
  std::vector<Bytes> all(count);
  for (std::size_t first = 0; first < count; first += kLanes) {
    const std::size_t batch = std::min(kLanes, count - first);
    lanes.restart();
    for (std::size_t i = 0; i < batch; ++i) {
      const std::size_t begin = (text.size() - kPromptBytes) * (first + i) / count;
      lanes.read(i, std::span(text).subspan(begin, kPromptBytes));
    }
    Bytes bytes(batch);
    for (std::size_t t = 0; t < kGreedyBytes; ++t) {
      if (t > 0) lanes.step(bytes);
      for (std::size_t i = 0; i < batch; ++i) all[first + i].push_back(bytes[i] = next(i));
    }
    progress.at(first + batch, count);
  }
  return all;
}

// In percent, rounded down: 100.00 is all of them.
std::string percent(std::size_t part, std::size_t whole) {
  return fmt::format("{:.2f} %", std::floor(1e4 * static_cast<double>(part) / static_cast<double>(whole)) / 100);
}

std::string table_row(const Row& row, const evaluate::Agreement& agreement, const std::vector<Bytes>& ours,
                      const std::vector<Bytes>& theirs) {
  std::size_t bytes = 0, texts = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    for (std::size_t t = 0; t < kGreedyBytes; ++t) bytes += ours[i][t] == theirs[i][t] ? 1U : 0U;
    texts += ours[i] == theirs[i] ? 1U : 0U;
  }
  return fmt::format("| {} | {} | {:.1f} | {:.1f} | {:.2g} | {:.2g} | {:.4f} | {} | {} | {} |\n", row.dtype,
                     base::human_count(row.file_bytes), row.load_ms, static_cast<double>(row.memory_bytes) / 1e6, agreement.largest,
                     agreement.mean, agreement.bpb,
                     percent(static_cast<std::size_t>(agreement.same_top), static_cast<std::size_t>(agreement.positions)),
                     percent(bytes, ours.size() * kGreedyBytes), percent(texts, ours.size()));
}

// The name of a model: the preset its run started from. What its run held out must be what is read here.
std::string name_of(const fs::path& input, const data::Split& split) {
  const fs::path run = fs::is_directory(input) ? input : input.parent_path();
  if (!fs::exists(run / "config.toml")) return input.stem().string();
  const auto config = train::load_config(run / "config.toml");
  std::string names;
  for (const auto& name : split.held_out_names) names += (names.empty() ? "" : "\n") + name;
  if (config.data.held_out != names) {
    throw base::Error(fmt::format("{} held out {}, and --data with --eval-tail gives {}; give the text its run was started on",
                                  base::escape(run.string()), base::escape(config.data.held_out, 200), base::escape(names, 200)));
  }
  return config.run.preset;
}

std::string section_of(const fs::path& input, const data::Split& split, std::size_t prompts) {
  const Bytes& window = split.held_out;
  const std::string name = name_of(input, split);
  auto model = network::load_model(input);
  const auto reference = network::read_weights(model.parameters, model.config);
  const Folder folder;
  std::vector<Row> rows;
  std::vector<network::Weights> weights;
  for (const std::string dtype : kTypes) {
    base::log_line(fmt::format("{}: {} written and loaded", name, dtype));
    rows.push_back(load(model, dtype, folder.path() / (dtype + ".dmexp"), weights));
  }

  base::log_line(name + ": bits per byte as training counts them");
  evaluate::BpbOptions options;
  options.row = model.config.max_seq_len;
  const double trained = evaluate::bits_per_byte(model.config, model.parameters, window, options).bpb;

  Progress reading(name + ": positions read");
  const auto agreements = evaluate::agreement(reference, weights, window, 0,
                                              [&](std::int64_t done) { reading.at(static_cast<std::size_t>(done), window.size()); });

  std::string text = fmt::format(
      "### {}\n\n{} parameters, d_model {}, {} iterations, rows of {} bytes; {} steps. `dormouse eval` of the checkpoint on the same "
      "bytes: "
      "{:.4f} BPB.\n\n",
      name, base::human_count(static_cast<std::uint64_t>(network::count(model.parameters, model.config))), model.config.d_model,
      model.config.max_iter, model.config.max_seq_len, base::human_count(static_cast<std::uint64_t>(model.step)), trained);
  text +=
      "| stored as | file, bytes | load, ms | memory, MB | largest logit difference | mean | BPB | same top byte | same greedy bytes | "
      "same "
      "greedy texts |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  Progress writing(name + ": greedy texts, f32 weights");
  const auto theirs = greedy(reference, window, prompts, writing);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Progress progress(fmt::format("{}: greedy texts, {}", name, rows[i].dtype));
    text += table_row(rows[i], agreements[i], greedy(weights[i], window, prompts, progress), theirs);
  }
  return text;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

void run(const Flags& flags) {
  ops::set_cpu_level("");
  base::set_threads(flags.threads);
  const auto split =
      data::carve(data::find_corpus(flags.data), static_cast<std::uint64_t>(base::parse_count(flags.eval_tail, "--eval-tail")));
  const auto prompts = static_cast<std::size_t>(base::parse_count(flags.prompts, "--prompts", 1, 1'000'000));
  if (split.held_out.size() <= kPromptBytes) throw base::UsageError("give a longer --eval-tail");
  std::string text;
  for (const auto& model : flags.models) text += section_of(model, split, prompts) + "\n";

  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  fmt::print(
      "Measured {:04}-{:02}-{:02} by commit {} ({}) on {}, CPU level {}, {} thread{}. Held-out text: the last {} bytes of {}; {} "
      "prompts.\n\n"
      "{}",
      utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, base::commit(), base::compiler(), cpu_model(), ops::cpu_level(), base::threads(),
      base::threads() == 1 ? "" : "s", base::human_count(split.held_out.size()), base::escape(fs::path(flags.data).filename().string()),
      base::human_count(prompts), text);
}

}  // namespace

int main(int argc, char** argv) {
  base::shorten_spinning(argv);
  Flags flags;
  CLI::App app("what storing a model narrow costs: a Markdown table");
  app.add_option("models", flags.models, "run directories or checkpoints")->type_name("RUN|CHECKPOINT")->required();
  app.add_option("--data", flags.data, "the text they were trained on")->type_name("FILE")->required();
  app.add_option("--eval-tail", flags.eval_tail, "bytes at its end that they held out (default 100000)")->type_name("N");
  app.add_option("--prompts", flags.prompts, "greedy texts (default 1000)")->type_name("N");
  app.add_option("-t,--threads", flags.threads, "threads; default: what affinity and quota give")->type_name("N");
  CLI11_PARSE(app, argc, argv);
  try {
    run(flags);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
