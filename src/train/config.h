// Everything a run is made of, as plain data: one struct per section of config.toml.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/threads.h"
#include "config/field.h"
#include "network/dormouse/config.h"
#include "optim/optimizer.h"

namespace dormouse::train {

// What the run is called and where it came from: section [run].
struct RunInfo {
  std::string run_id;  // 128 bits, hex
  std::string preset = "tiny";
  std::string version;  // of the program that started it

  bool operator==(const RunInfo&) const = default;
};

inline constexpr std::int64_t kMostSteps = 1'000'000'000'000;

// Section [train]. 0 or "" means "derived": resolve_new fills it in before anything is written.
struct TrainConfig {
  std::int64_t steps = 0;  // 0: by time_limit
  double time_limit = 0;   // seconds; 0: by steps
  std::int64_t batch = 8;
  std::int64_t seq_len = 0;  // derived: the model's max_seq_len
  std::int64_t accum = 1;
  double lr = 0;  // derived from the model's width
  double wd = 0.05;
  double grad_clip = 1.0;
  std::string opt = "mix-dense";
  std::int64_t ns_steps = 5;
  double mult_muon = 1, mult_qk = 1, mult_dense = 4, mult_table = 3, mult_embedding = 2, mult_rest = 1;
  std::int64_t retract_every = 1, retract_iters = 3;
  double decay_fraction = 0.35;
  bool memory_reset = true;
  std::int64_t seed = 1;
  std::string compute;  // derived: f32 (docs/decisions/0002-compute-type.md)
  bool recompute = false;
  std::int64_t log_every = 0, eval_every = 0, ckpt_every = 0;  // steps; 0: by time
  std::int64_t eval_bytes = 256 * 1024;
  bool eval_depths = false, tensorboard = false;
  std::int64_t threads = 0;  // 0: what the machine gives

  bool operator==(const TrainConfig&) const = default;
};

// Section [data]. `identity` is what a resume compares; paths are as typed.
struct DataConfig {
  std::string path;
  std::string eval_path;         // "": carved from path
  std::int64_t eval_tail = 0;    // 0: the default share
  std::string include, exclude;  // globs, one per line
  std::string identity;
  std::string held_out;  // names of what was carved, one per line

  bool operator==(const DataConfig&) const = default;
};

struct RunConfig {
  RunInfo run;
  network::ModelConfig model;
  TrainConfig train;
  DataConfig data;

  bool operator==(const RunConfig&) const = default;
};

template <class Config, class Visit>
void for_each_field(Config& c, Visit&& visit) requires std::is_same_v<std::remove_const_t<Config>, RunInfo> {
  using config::Field;
  visit(Field{.name = "run_id", .doc = "128 random bits that tie the files of a run together"}, c.run_id);
  visit(Field{.name = "preset", .doc = "the preset the model started from, or the name of the --config file"}, c.preset);
  visit(Field{.name = "version", .doc = "program that started the run"}, c.version);
}

template <class Config, class Visit>
void for_each_field(Config& c, Visit&& visit) requires std::is_same_v<std::remove_const_t<Config>, TrainConfig> {
  using config::Field;
  visit(Field{.name = "steps", .doc = "length of the run in steps; 0: by time_limit", .min = 0, .max = kMostSteps}, c.steps);
  visit(Field{.name = "time_limit", .doc = "length of the run in seconds of training; 0: by steps", .min = 0, .max = 1e9}, c.time_limit);
  visit(Field{.name = "batch", .doc = "rows per forward pass", .min = 1, .max = 65536}, c.batch);
  visit(Field{.name = "seq_len", .doc = "bytes per row; 0: the model's max_seq_len", .min = 0, .max = 1048576}, c.seq_len);
  visit(Field{.name = "accum", .doc = "forward passes per step", .min = 1, .max = 65536}, c.accum);
  visit(Field{.name = "lr", .doc = "peak learning rate; 0: by the model's width", .min = 0, .max = 100}, c.lr);
  visit(Field{.name = "wd", .doc = "weight decay of dense matrices", .min = 0, .max = 100}, c.wd);
  visit(Field{.name = "grad_clip", .doc = "largest gradient norm of the `rest` group; 0: off", .min = 0, .max = 1e9}, c.grad_clip);
  visit(Field{.name = "opt", .doc = "optimizer", .choices = "mix-dense|mix|adamw"}, c.opt);
  visit(Field{.name = "ns_steps", .doc = "Newton-Schulz iterations of Muon", .min = 1, .max = 64}, c.ns_steps);
  visit(Field{.name = "mult_muon", .doc = "learning rate multiplier of the muon group", .min = 0, .max = 1000}, c.mult_muon);
  visit(Field{.name = "mult_qk", .doc = "learning rate multiplier of W_q, W_k", .min = 0, .max = 1000}, c.mult_qk);
  visit(Field{.name = "mult_dense",
              .doc = "learning rate multiplier of the dense projections under mix-dense",
              .min = 0,
              .max = 1000,
              .before = "1"},
        c.mult_dense);
  visit(Field{.name = "mult_table", .doc = "learning rate multiplier of the memory table", .min = 0, .max = 1000}, c.mult_table);
  visit(Field{.name = "mult_embedding", .doc = "learning rate multiplier of the embedding", .min = 0, .max = 1000}, c.mult_embedding);
  visit(Field{.name = "mult_rest", .doc = "learning rate multiplier of the rest", .min = 0, .max = 1000}, c.mult_rest);
  visit(Field{.name = "retract_every", .doc = "steps between retractions of the spectral factors", .min = 1, .max = 1e9}, c.retract_every);
  visit(Field{.name = "retract_iters", .doc = "iterations of a retraction", .min = 1, .max = 64}, c.retract_iters);
  visit(Field{.name = "decay_fraction", .doc = "share of the run in which the learning rate decays", .min = 0, .max = 1}, c.decay_fraction);
  visit(Field{.name = "memory_reset",
              .doc = "the memory's rows begin anew with every epoch of 100 steps or more; their rate does not decay",
              .before = "false"},
        c.memory_reset);
  visit(Field{.name = "seed", .doc = "of the weights and the order of the data", .min = 0, .max = 9e15}, c.seed);
  visit(Field{.name = "compute", .doc = "input type of the matrix products", .choices = "|f32|bf16|i16"}, c.compute);
  visit(Field{.name = "recompute",
              .doc = "backward makes each iteration again instead of keeping it: less memory, a longer step, the same run",
              .progress = true,
              .before = "false"},
        c.recompute);
  visit(Field{.name = "log_every", .doc = "steps between log lines; 0: every 5 seconds", .min = 0, .max = 1e12, .progress = true},
        c.log_every);
  visit(Field{.name = "eval_every", .doc = "steps between evaluations; 0: every tenth of the run", .min = 0, .max = 1e12, .progress = true},
        c.eval_every);
  visit(Field{.name = "ckpt_every", .doc = "steps between checkpoints; 0: every 10 minutes", .min = 0, .max = 1e12, .progress = true},
        c.ckpt_every);
  visit(Field{.name = "eval_bytes", .doc = "largest held-out window in bytes", .min = 2, .max = 1e15}, c.eval_bytes);
  visit(Field{.name = "eval_depths", .doc = "print the depth curve with every evaluation", .progress = true}, c.eval_depths);
  visit(Field{.name = "tensorboard", .doc = "write TensorBoard event files into the run", .progress = true, .before = "false"},
        c.tensorboard);
  visit(Field{.name = "threads", .doc = "0: what the machine gives", .min = 0, .max = base::kMostTeam, .progress = true}, c.threads);
}

template <class Config, class Visit>
void for_each_field(Config& c, Visit&& visit) requires std::is_same_v<std::remove_const_t<Config>, DataConfig> {
  using config::Field;
  visit(Field{.name = "path", .doc = "file or folder to train on"}, c.path);
  visit(Field{.name = "eval_path", .doc = "held-out file or folder; empty: carved from path"}, c.eval_path);
  visit(Field{.name = "eval_tail", .doc = "hold out exactly the last N bytes; 0: the default share", .min = 0, .max = 1e15}, c.eval_tail);
  visit(Field{.name = "include", .doc = "globs of files to take, one per line"}, c.include);
  visit(Field{.name = "exclude", .doc = "globs of files to leave out, one per line"}, c.exclude);
  visit(Field{.name = "identity", .doc = "names, sizes and checksums a resume compares"}, c.identity);
  visit(Field{.name = "held_out", .doc = "what was held out, one per line"}, c.held_out);
}

// One setting a person typed: its key, the text, and the words to repeat in errors ("--batch 8", "--set d_model=64").
struct Typed {
  std::string key, text, spelling;
};

// What the command line asks for, before it is a config.
struct Request {
  std::optional<std::string> preset;                   // --preset
  std::optional<std::filesystem::path> config_file;    // --config
  std::vector<Typed> typed;                            // --set first, then flags
  std::optional<std::filesystem::path> data, eval;     // compared by identity, not by name
  std::optional<std::filesystem::path> run_directory;  // --run
  bool must_be_new = false;                            // --new
  std::optional<std::int64_t> extend;                  // --extend: steps to add to a finished run
  std::string command;                                 // the whole line, for the log
};

// What --set may name: the keys of [model] and [train], and those of [data] that choose text.
std::vector<std::string_view> settable_keys();

// New run: defaults, preset or --config, --set, flags, derived values, validation. base::UsageError or base::Error naming key and way out.
RunConfig resolve_new(const Request& request);
// Existing run: its own config is the base; what is typed must agree with it, except progress keys, which are applied.
RunConfig resolve_existing(const Request& request, const RunConfig& base, std::string_view run_name);

std::string write_config(const RunConfig& config);  // config.toml with sections [run] [model] [train] [data]
// What write_config wrote, every key there; a file of a newer program is refused before its keys are looked at.
RunConfig read_config(std::string_view text, std::string_view where);
// base::Error when `version` ("0.1.0") is of a later program than this one; a later patch release changes no file.
void refuse_newer(std::string_view version, std::string_view where);
// The first key, outside [run], in which the config of a run and that of its checkpoint differ; "" when none. What a resume may change
// (progress keys, names of the data) and the lengths, which the checkpoint rules, are left out.
std::string changed_key(const RunConfig& config, const RunConfig& saved);
RunConfig load_config(const std::filesystem::path& config_toml);

optim::OptimizerConfig optimizer_config(const TrainConfig& train);
// The type that --compute or the key `compute` names; "" is the default, f32. base::UsageError: unknown, or a CPU without its instructions.
ops::Compute compute_of(std::string_view name);

}  // namespace dormouse::train
