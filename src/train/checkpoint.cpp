#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "network/dormouse/export.h"
#include "network/dormouse/model_file.h"

namespace dormouse::train {
namespace {

using Metadata = std::map<std::string, std::string>;

Metadata metadata_of(const RunConfig& config, const Progress& progress, const std::string& kind) {
  const auto& s = progress.schedule;
  return {
      {"format", "pt"},
      {"dormouse.kind", kind},
      {"dormouse.version", std::string(base::version())},
      {"run_id", config.run.run_id},
      {"step", std::to_string(progress.step)},
      {"config", write_config(config)},
      {"stream", progress.stream.text()},
      {"schedule", fmt::format("lr {} warm {} decay_start {} decay_steps {}", s.lr, s.warm, s.decay_start, s.decay_steps)},
      {"elapsed", fmt::format("{}", progress.elapsed)},
      {"best_bpb", fmt::format("{} at {}", progress.best_bpb, progress.best_step)},
      {"last_bpb", fmt::format("{} at {}", progress.last_bpb, progress.last_eval_step)},
      {"window", std::to_string(progress.window)},
      {"skipped", std::to_string(progress.skipped)},
      {"latch", std::to_string(progress.latched_step)},
      {"eval_pending", progress.eval_pending ? "1" : "0"},
      {"anchors", progress.anchors},
  };
}

// Words and numbers of "lr 0.003 warm 20 ...", each checked.
class Words {
 public:
  Words(std::string text, std::string key, std::string where) : text_(std::move(text)), key_(std::move(key)), where_(std::move(where)) {}
  void word(std::string_view expected) {
    if (next() != expected) refuse();
  }
  template <class T>
  T number() {
    const auto token = next();
    T value{};
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error != std::errc() || end != token.data() + token.size()) refuse();
    return value;
  }
  void end() {
    if (at_ < text_.size()) refuse();
  }

 private:
  std::string_view next() {
    const std::size_t begin = std::min(at_, text_.size());
    const std::size_t stop = std::min(text_.find(' ', begin), text_.size());
    at_ = stop + 1;
    return std::string_view(text_).substr(begin, stop - begin);
  }
  [[noreturn]] void refuse() const {
    throw base::Error(fmt::format("{}: metadata {} = \"{}\" is not what `dormouse train` writes; use another checkpoint of the run",
                                  base::escape(where_), key_, base::escape(text_)));
  }
  std::string text_, key_, where_;
  std::size_t at_ = 0;
};

Words words(const Metadata& metadata, const std::string& key, const std::string& where) {
  const auto it = metadata.find(key);
  if (it == metadata.end()) {
    throw base::Error(fmt::format("{}: no `{}` in its metadata; it is not a checkpoint a run can resume from", base::escape(where), key));
  }
  return {it->second, key, where};
}

bool all_finite(const tensor::Tensor& value) {
  if (value.dtype() != tensor::Dtype::f32) return true;
  const float* x = value.data<float>();
  return std::all_of(x, x + value.size(), [](float v) { return std::isfinite(v); });
}

// The run's config and the one in its checkpoint are one. The lengths are the checkpoint's: --extend writes it first.
void compare_configs(const Metadata& metadata, const std::string& where, RunConfig& config) {
  const auto text = metadata.find("config");
  if (text == metadata.end())
    throw base::Error(fmt::format("{}: no `config` in its metadata; use another checkpoint", base::escape(where)));
  const RunConfig saved = read_config(text->second, where + " (config)");
  if (const std::string key = changed_key(config, saved); !key.empty()) {
    throw base::Error(
        fmt::format("{}: `{}` in the config.toml beside it is not what it was when this was saved; put the old value back "
                    "(`dormouse info` shows it), or start another run with --run",
                    base::escape(where), key));
  }
  if (saved.train.steps != config.train.steps || saved.train.time_limit != config.train.time_limit) {
    base::log_line("config.toml names another length than the checkpoint: the checkpoint's counts; --extend N lengthens a finished run");
  }
  config.train.steps = saved.train.steps;
  config.train.time_limit = saved.train.time_limit;
}

void load_optimizer(const format::SafetensorsFile& file, const std::string& where, optim::Optimizer& optimizer) {
  std::set<std::string> wanted;
  optimizer.for_each_state([&](const std::string& name, tensor::Tensor& value) {
    wanted.insert(name);
    const auto* entry = file.find(name);
    if (entry == nullptr)
      throw base::Error(fmt::format("{}: tensor {} is missing; use another checkpoint of the run", base::escape(where), name));
    const tensor::Tensor stored = file.read(*entry);
    if (!all_finite(stored))
      throw base::Damaged(
          fmt::format("{}: tensor {} holds a value that is not finite; use another checkpoint of the run", base::escape(where), name));
    if (stored.shape() != value.shape() || stored.dtype() != value.dtype()) {
      throw base::Error(fmt::format("{}: tensor {} is {} {}, expected {} {}; use another checkpoint of the run", base::escape(where), name,
                                    tensor::name_of(stored.dtype()), stored.shape().text(), tensor::name_of(value.dtype()),
                                    value.shape().text()));
    }
    value.copy_from(stored);
  });
  for (const auto& entry : file.entries()) {
    if (!entry.name.starts_with("model.") && !wanted.contains(entry.name)) {
      throw base::Error(fmt::format("{}: tensor {} belongs to no part of this run; its optimizer is `{}`?", base::escape(where),
                                    base::escape(entry.name), "another --opt"));
    }
  }
}

}  // namespace

data::ByteStream::Position parse_position(const std::string& text, const std::string& where) {
  Words in(text, "stream", where);
  data::ByteStream::Position position;
  in.word("epoch");
  position.epoch = in.number<std::uint64_t>();
  in.word("generation");
  position.generation = in.number<std::uint64_t>();
  in.word("window");
  position.index = in.number<std::uint64_t>();
  in.end();
  return position;
}

SavedState checkpoint_state(const RunConfig& config, Trainer& trainer, const Progress& progress) {
  SavedState state{network::model_tensors(trainer.parameters(), config.model), metadata_of(config, progress, "checkpoint")};
  trainer.optimizer().for_each_state([&](const std::string& name, tensor::Tensor& value) { state.tensors.push_back({name, value}); });
  return state;
}

SavedState weights_state(const RunConfig& config, Trainer& trainer, const Progress& progress) {
  return {network::model_tensors(trainer.parameters(), config.model), metadata_of(config, progress, "weights")};
}

void write_export(const std::filesystem::path& path, const std::filesystem::path& source, const RunConfig& config, const Progress& progress,
                  const SavedState& state) {
  std::map<std::string, const tensor::Tensor*> tensors;
  for (const auto& [name, value] : state.tensors) tensors[name] = &value;
  auto parameters = network::declare_shapes(config.model);
  network::for_each(parameters, config.model, [&](tensor::Parameter& p) { p.value = *tensors.at("model." + p.name); });
  network::Provenance provenance{.source = source.filename().string(), .step = progress.step, .bpb = {}, .window = {}};
  if (progress.last_eval_step == progress.step && std::isfinite(progress.last_bpb) && progress.window > 0) {
    provenance.bpb = progress.last_bpb;
    provenance.window = progress.window;
  }
  format::write_dmexp(path, network::export_image(parameters, config.model, provenance, "bf16"));
}

Progress load_checkpoint(const std::filesystem::path& path, RunConfig& config, Trainer& trainer) {
  const std::string where = path.string();
  const format::SafetensorsFile file(path);
  const auto& metadata = file.metadata();
  const auto kind = metadata.find("dormouse.kind");
  if (kind == metadata.end() || kind->second != "checkpoint") {
    throw base::Error(fmt::format(
        "{}: not a training checkpoint (no dormouse.kind = checkpoint); a run resumes from checkpoint.safetensors", base::escape(where)));
  }
  if (const auto version = metadata.find("dormouse.version"); version != metadata.end()) refuse_newer(version->second, where);
  const auto id = metadata.find("run_id");
  if (id == metadata.end() || id->second != config.run.run_id) {
    throw base::Error(
        fmt::format("{}: belongs to another run than the config.toml beside it; bring its own checkpoint back, or start another "
                    "run with --run",
                    base::escape(where)));
  }
  compare_configs(metadata, where, config);
  network::read_parameters(file, where, trainer.parameters(), config.model);
  load_optimizer(file, where, trainer.optimizer());

  return read_progress(file, where);
}

Progress read_progress(const format::SafetensorsFile& file, const std::string& where) {
  const auto& metadata = file.metadata();
  Progress progress;
  const auto one = [&](const std::string& key, auto& value) {
    Words in = words(metadata, key, where);
    value = in.number<std::remove_reference_t<decltype(value)>>();
    in.end();
  };
  const auto bpb = [&](const std::string& key, double& value, std::int64_t& step) {
    Words in = words(metadata, key, where);
    value = in.number<double>();
    in.word("at");
    step = in.number<std::int64_t>();
    in.end();
  };
  one("step", progress.step);
  one("elapsed", progress.elapsed);
  one("skipped", progress.skipped);
  one("latch", progress.latched_step);
  bpb("best_bpb", progress.best_bpb, progress.best_step);
  bpb("last_bpb", progress.last_bpb, progress.last_eval_step);
  if (metadata.contains("window")) one("window", progress.window);
  const auto pending = metadata.find("eval_pending");
  progress.eval_pending = pending != metadata.end() && pending->second == "1";
  const auto stream = metadata.find("stream");
  progress.stream = parse_position(stream == metadata.end() ? "" : stream->second, where);
  Words in = words(metadata, "schedule", where);
  in.word("lr");
  progress.schedule.lr = in.number<double>();
  in.word("warm");
  progress.schedule.warm = in.number<std::int64_t>();
  in.word("decay_start");
  progress.schedule.decay_start = in.number<std::int64_t>();
  in.word("decay_steps");
  progress.schedule.decay_steps = in.number<std::int64_t>();
  in.end();
  if (const auto anchors = metadata.find("anchors"); anchors != metadata.end()) progress.anchors = anchors->second;
  const bool possible =
      progress.step >= 0 && progress.step <= kMostSteps && progress.elapsed >= 0 && std::isfinite(progress.elapsed) && progress.window >= 0;
  if (!possible) {
    throw base::Damaged(fmt::format("{}: its metadata holds a step, a time or a window that no run has; use another checkpoint of the run",
                                    base::escape(where)));
  }
  return progress;
}

}  // namespace dormouse::train
