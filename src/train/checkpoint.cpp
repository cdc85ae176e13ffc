#include "train/checkpoint.h"

#include <charconv>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/version.h"
#include "format/safetensors.h"
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
      {"skipped", std::to_string(progress.skipped)},
      {"latch", std::to_string(progress.latched_step)},
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

void load_optimizer(const format::SafetensorsFile& file, const std::string& where, optim::Optimizer& optimizer) {
  std::set<std::string> wanted;
  optimizer.for_each_state([&](const std::string& name, tensor::Tensor& value) {
    wanted.insert(name);
    const auto* entry = file.find(name);
    if (entry == nullptr)
      throw base::Error(fmt::format("{}: tensor {} is missing; use another checkpoint of the run", base::escape(where), name));
    const tensor::Tensor stored = file.read(*entry);
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

void save_checkpoint(const std::filesystem::path& path, const RunConfig& config, Trainer& trainer, const Progress& progress) {
  auto tensors = network::model_tensors(trainer.parameters(), config.model);
  trainer.optimizer().for_each_state([&](const std::string& name, tensor::Tensor& value) { tensors.push_back({name, value}); });
  format::write_safetensors(path, tensors, metadata_of(config, progress, "checkpoint"));
}

void save_weights(const std::filesystem::path& path, const RunConfig& config, Trainer& trainer, const Progress& progress) {
  format::write_safetensors(path, network::model_tensors(trainer.parameters(), config.model), metadata_of(config, progress, "weights"));
}

Progress load_checkpoint(const std::filesystem::path& path, const RunConfig& config, Trainer& trainer) {
  const std::string where = path.string();
  const format::SafetensorsFile file(path);
  const auto& metadata = file.metadata();
  const auto kind = metadata.find("dormouse.kind");
  if (kind == metadata.end() || kind->second != "checkpoint") {
    throw base::Error(fmt::format(
        "{}: not a training checkpoint (no dormouse.kind = checkpoint); a run resumes from checkpoint.safetensors", base::escape(where)));
  }
  const auto id = metadata.find("run_id");
  if (id == metadata.end() || id->second != config.run.run_id) {
    throw base::Error(
        fmt::format("{}: belongs to another run than the config.toml beside it; bring its own checkpoint back, or start another "
                    "run with --run",
                    base::escape(where)));
  }
  network::read_parameters(file, where, trainer.parameters(), config.model);
  load_optimizer(file, where, trainer.optimizer());

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
  return progress;
}

}  // namespace dormouse::train
