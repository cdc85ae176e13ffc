#include "train/run.h"

#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/threads.h"
#include "data/byte_stream.h"
#include "train/directory.h"
#include "train/loop.h"
#include "train/plan.h"
#include "train/run_data.h"
#include "train/signals.h"

namespace dormouse::train {

int run(const Request& request, bool json) {
  watch_signals();
  const RunDirectory directory = choose_directory(request);
  const bool resume = directory.exists();
  if (resume && request.must_be_new) {
    throw base::Error(
        fmt::format("{} holds a run already; leave --new out to resume it, or name another with --run", base::escape(directory.name())));
  }
  if (!resume) refuse_foreign(directory);
  if (!resume && !request.data) {
    throw base::UsageError(fmt::format("{} holds no run to resume; to start one there, give --data PATH, a file or a folder of text",
                                       base::escape(directory.name())));
  }
  std::optional<base::Lock> lock;
  RunConfig config;
  if (resume) {
    lock.emplace(directory.lock());
    config = resolve_existing(request, load_config(directory.config()), directory.name());
  } else {
    config = resolve_new(request);
    config.run.run_id = new_run_id();
  }
  base::set_threads(static_cast<int>(config.train.threads));

  std::error_code ignored;
  if (resume && !request.data && !std::filesystem::exists(config.data.path, ignored)) {
    throw base::Error(fmt::format("the text of this run, {}, is not there; if it lies elsewhere now: {} --data PATH",
                                  base::escape(config.data.path), resume_command(directory)));
  }
  RunData data = open_data(config, directory.root);
  bind_data(config, data, resume, directory.name());
  const std::uint64_t train_bytes = data.train.bytes;
  const auto stream = with_path(config.data.path, [&] {
    return std::make_unique<data::ByteStream>(data.train, config.train.seq_len, config.train.batch,
                                              static_cast<std::uint64_t>(config.train.seed));
  });
  const MemoryPlan plan = plan_memory(config, train_bytes);
  refuse_above(plan, base::available_memory());

  if (!resume) {
    std::error_code error;
    std::filesystem::create_directories(directory.root, error);
    if (error)
      throw base::Error(fmt::format("cannot create {}: {}; name another with --run", base::escape(directory.name()), error.message()));
    lock.emplace(directory.lock());
    if (directory.exists()) throw base::Error(fmt::format("{} was started by another process just now", base::escape(directory.name())));
  }
  remove_stale_temporaries(directory);
  return Run(request, json, directory, *lock, config, std::move(data), *stream).start(plan);
}

}  // namespace dormouse::train
