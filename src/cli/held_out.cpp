#include "cli/held_out.h"

#include <fmt/format.h>

#include "base/error.h"
#include "train/config.h"
#include "train/run_data.h"

namespace dormouse::cli {
namespace {

// The run directory that a model is in; empty when there is no config.toml.
std::filesystem::path run_of(const std::filesystem::path& run_or_file) {
  std::error_code ignored;
  const auto run = std::filesystem::is_directory(run_or_file, ignored) ? run_or_file : run_or_file.parent_path();
  return std::filesystem::exists(run / "config.toml", ignored) ? (run.empty() ? "." : run) : std::filesystem::path();
}

}  // namespace

std::optional<Window> held_out_window(const std::filesystem::path& run, const network::ModelConfig& model, std::int64_t limit,
                                      std::string_view way_out) {
  const auto config_path = run / "config.toml";
  std::error_code ignored;
  if (!std::filesystem::exists(config_path, ignored)) return std::nullopt;
  auto config = train::load_config(config_path);
  if (config.model != model) {
    throw base::Error(fmt::format("{}: its checkpoint is of another model than the config.toml beside it; bring its own checkpoint back",
                                  base::escape(run.string())));
  }
  if (limit > 0) config.train.eval_bytes = limit;
  auto data = train::open_data(config, run);
  if (const auto other = train::other_data(config, data, run.string()); !other.what.empty())
    throw base::Error(fmt::format("{}; {}", other.what, way_out));
  return Window{std::move(data.window), "the run's held-out text"};
}

std::string seen_in_training(const std::filesystem::path& run_or_file, const data::Corpus& text, const Window& window) {
  try {
    const auto run = run_of(run_or_file);
    if (run.empty()) return "";
    const auto config = train::load_config(run / "config.toml");
    if (const auto file = train::trained_on(config.data, text); !file.empty()) {
      return fmt::format("WARNING: {} was trained on {}: the BPB says how well it remembers that, not how well it predicts",
                         base::escape(run_or_file.string()), file);
    }
    const auto overlap = train::overlap_text(train::open_data(config, run).train, window.bytes);
    return overlap.empty() ? "" : fmt::format("{}: {}", window.name, overlap);
  } catch (const base::Error&) {  // another program's config.toml, or its text is gone
    return "";
  }
}

}  // namespace dormouse::cli
