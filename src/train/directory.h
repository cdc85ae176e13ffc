// The files of a run directory, and how one is found or refused.
#pragma once

#include <filesystem>
#include <string>

#include "train/config.h"

namespace dormouse::train {

struct RunDirectory {
  std::filesystem::path root;
  std::filesystem::path config() const { return root / "config.toml"; }
  std::filesystem::path checkpoint() const { return root / "checkpoint.safetensors"; }
  std::filesystem::path previous() const { return root / "previous.safetensors"; }
  std::filesystem::path damaged() const { return root / "damaged.safetensors"; }  // a checkpoint that did not load, kept aside
  std::filesystem::path best() const { return root / "best.safetensors"; }
  std::filesystem::path exported() const { return root / "model.dmexp"; }
  std::filesystem::path stable() const { return root / "stable.safetensors"; }
  std::filesystem::path lock() const { return root / "lock"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::string name() const { return root.string(); }
  bool exists() const;  // a run was started here
};

// --run, or runs/<data>-<preset>.
RunDirectory choose_directory(const Request& request);
// A directory with other things in it is not taken over: base::Error.
void refuse_foreign(const RunDirectory& directory);
// Removes what a killed writer left behind, and nothing that another process (an export, say) still writes; call under the lock.
void remove_stale_temporaries(const RunDirectory& directory);

// "dormouse train --run runs/a"
std::string resume_command(const RunDirectory& directory);

// 128 random bits as 32 hex digits.
std::string new_run_id();

}  // namespace dormouse::train
