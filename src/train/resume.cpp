#include "train/resume.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace dormouse::train {
namespace {

// Also a link that leads nowhere: an unmounted disk is no reason to go on without what it holds.
bool present(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

// A step was logged, and the first save comes before the first step.
bool has_trained(const RunDirectory& directory) {
  constexpr std::uint64_t kStart = 1U << 16;
  if (!present(directory.metrics())) return false;
  const auto start = base::read_start(directory.metrics(), kStart);
  return std::string_view(reinterpret_cast<const char*>(start.data()), start.size()).find("\"event\":\"step\"") != std::string_view::npos;
}

std::string names_of_weights(const RunDirectory& directory) {
  std::string names;
  for (const auto& path : {directory.stable(), directory.best()})
    if (present(path)) names += (names.empty() ? "" : " and ") + path.filename().string();
  return names;
}

[[noreturn]] void refuse(const RunDirectory& directory, const std::string& reasons) {
  const std::string weights = names_of_weights(directory);
  throw base::Error(fmt::format("{} cannot go on: {}. Nothing was changed: bring a good checkpoint back, or start another run with --run{}",
                                base::escape(directory.name()), reasons, weights.empty() ? "" : "; " + weights + " may still be good"));
}

// False: there is none.
bool put_aside(const RunDirectory& directory) {
  if (!present(directory.checkpoint())) return false;
  if (::rename(directory.checkpoint().c_str(), directory.damaged().c_str()) == 0) return true;
  throw base::Error(
      fmt::format("cannot put the damaged {} aside: {}", base::escape(directory.checkpoint().string()), std::strerror(errno)));
}

}  // namespace

std::optional<Resumed> load_newest(const RunDirectory& directory, RunConfig& config, Trainer& trainer) {
  std::string reason = "checkpoint.safetensors is missing";
  if (present(directory.checkpoint())) {
    try {
      return Resumed{load_checkpoint(directory.checkpoint(), config, trainer), false};
    } catch (const base::Damaged& damage) {
      reason = damage.what();
    }
  } else if (!present(directory.previous())) {
    if (has_trained(directory) || !names_of_weights(directory).empty())
      refuse(directory, "it has no checkpoint.safetensors and no previous.safetensors to resume from");
    return std::nullopt;
  }
  if (!present(directory.previous())) refuse(directory, reason + "; there is no previous.safetensors");
  Resumed resumed{{}, true};
  try {
    resumed.progress = load_checkpoint(directory.previous(), config, trainer);
  } catch (const base::Error& error) {
    refuse(directory, fmt::format("{}; and {}", reason, error.what()));
  }
  const bool kept = put_aside(directory);
  base::log_line(fmt::format("WARNING: {}; going on from the save before it, previous.safetensors{}", reason,
                             kept ? ", and keeping the damaged file as damaged.safetensors" : ""));
  return resumed;
}

}  // namespace dormouse::train
