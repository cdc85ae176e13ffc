// The files a run writes its state into: one save at a time, in a thread of its own when a copy of the state fits into memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "train/checkpoint.h"
#include "train/directory.h"

namespace dormouse::train {

// How a save ended.
struct SaveOutcome {
  std::string file;  // "checkpoint.safetensors"
  std::int64_t step = 0;
  std::string error;  // "": written
};

class Saver {
 public:
  // saved_step: that of the checkpoint on disk, -1 when there is none.
  // lock: of the directory; every save asks first whether it still holds. Outlives the saver.
  Saver(RunDirectory directory, const base::Lock& lock, std::int64_t saved_step);
  ~Saver();  // waits for the save in progress
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Each waits for the save before it, copies the state and returns while the copy is written; without memory for the first copy it
  // writes at once and training waits (counted). A checkpoint of another step than the one on disk keeps that one as previous.safetensors.
  void checkpoint(const RunConfig& config, Trainer& trainer, const Progress& progress);
  void checkpoint_now(const RunConfig& config, Trainer& trainer, const Progress& progress);  // neither copies nor returns before its end
  void stable(const RunConfig& config, Trainer& trainer, const Progress& progress);
  // best.safetensors, and model.dmexp made of it; each ends with an outcome of its own.
  void best(const RunConfig& config, Trainer& trainer, const Progress& progress);
  // model.dmexp made of the checkpoint just saved; returns when it is written.
  void export_now(const RunConfig& config, Trainer& trainer, const Progress& progress);

  void finish();                        // waits for the save in progress
  std::vector<SaveOutcome> outcomes();  // of the saves that ended since the last call

  std::int64_t saved_step() const { return saved_step_; }  // of the newest checkpoint known to be on disk
  std::int64_t failed() const { return failed_; }          // saves of this process that failed
  std::int64_t stalled() const { return stalled_; }        // saves for which training waited, for want of memory

 private:
  bool copy();
  void prepare(SavedState state, const std::filesystem::path& path, const std::filesystem::path& previous, std::int64_t step);
  void prepare_checkpoint(const RunConfig& config, Trainer& trainer, const Progress& progress);
  void start();
  void write();
  void take_outcome();
  void record(const SaveOutcome& outcome);

  RunDirectory directory_;
  const base::Lock& lock_;
  std::int64_t saved_step_, failed_ = 0, stalled_ = 0;
  std::thread thread_;
  std::atomic<bool> ended_ = false;  // of the save in thread_, which owns the next six until then
  SavedState state_;
  std::filesystem::path path_, previous_;
  SaveOutcome running_;
  std::function<void()> also_;  // what the same state is written into beside path_, or nothing
  std::optional<SaveOutcome> also_running_;
  std::vector<SaveOutcome> outcomes_;
  std::map<std::string, tensor::Tensor> copies_;  // by name, kept: memory is asked for once
};

}  // namespace dormouse::train
