#include "train/directory.h"

#include <random>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/shell.h"

namespace dormouse::train {
namespace {

// The last name of the data path, with everything a shell would stumble over replaced.
std::string plain_name(const std::filesystem::path& data) {
  std::error_code ignored;
  const auto whole = std::filesystem::weakly_canonical(data, ignored);
  std::string name = whole.stem().string();
  if (name.empty()) name = "data";
  if (name.size() > 60) name.resize(60);
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!plain) c = '_';
  }
  if (name[0] == '-' || name[0] == '.') name[0] = '_';
  return name;
}

// What a killed save leaves under a name of its own.
bool is_temporary(const std::string& name) {
  for (const char* base : {"checkpoint.safetensors", "previous.safetensors", "best.safetensors", "stable.safetensors", "model.dmexp",
                           "config.toml", "status.txt"})
    if (base::is_temporary_of(name, base)) return true;
  return false;
}

// What a start leaves that did not come to its config.toml.
bool is_ours(const std::string& name) {
  return name == "lock" || name == "log.txt" || name == "status.txt" || name == "metrics.jsonl" || is_temporary(name);
}

}  // namespace

bool RunDirectory::exists() const {
  std::error_code ignored;
  return std::filesystem::exists(config(), ignored);
}

RunDirectory choose_directory(const Request& request) {
  if (request.run_directory) return {*request.run_directory};
  if (!request.data)
    throw base::UsageError("what should it learn? give --data PATH, a file or a folder of text (or --run DIR to resume a run)");
  std::string model = request.preset.value_or("tiny");
  if (request.config_file) model = plain_name(*request.config_file);
  return {std::filesystem::path("runs") / (plain_name(*request.data) + "-" + model)};
}

void refuse_foreign(const RunDirectory& directory) {
  std::error_code ignored;
  if (!std::filesystem::exists(directory.root, ignored)) return;
  if (!std::filesystem::is_directory(directory.root, ignored)) {
    throw base::Error(fmt::format("{} is a file, not a run directory; give another --run", base::escape(directory.name())));
  }
  std::error_code error;
  const std::filesystem::directory_iterator entries(directory.root, error);
  if (error) throw base::Error(fmt::format("cannot read {}: {}; name another with --run", base::escape(directory.name()), error.message()));
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (name == "checkpoint.safetensors" || name == "previous.safetensors") {
      throw base::Error(
          fmt::format("{} has {} but no config.toml; bring it back (`dormouse info` shows what stood in it), or give another --run",
                      base::escape(directory.name()), name));
    }
    if (!is_ours(name)) {
      throw base::Error(fmt::format("{} holds other things ({}) and no run; give an empty or a new directory to --run",
                                    base::escape(directory.name()), base::escape(name)));
    }
  }
}

void remove_stale_temporaries(const RunDirectory& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory.root, ignored)) {
    const std::string name = entry.path().filename().string();
    if (is_temporary(name) && !base::is_written_by_another(name)) std::filesystem::remove(entry.path(), ignored);
  }
}

std::string resume_command(const RunDirectory& directory) {
  return fmt::format("{} train --run {}", base::program(), base::shell_word(directory.name()));
}

std::string new_run_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

}  // namespace dormouse::train
