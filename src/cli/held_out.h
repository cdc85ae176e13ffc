// The text a run scores itself on, found again from its directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus.h"
#include "network/dormouse/config.h"

namespace dormouse::cli {

struct Window {
  std::vector<std::uint8_t> bytes;
  std::string name;  // for a sentence: "the run's held-out text"
};

// nullopt: no run directory (no config.toml). limit: at most so many bytes, 0: as the run. base::Error: another model's directory, data
// that is gone, or changed: then with the command's way out, "bring the files back, or ...".
std::optional<Window> held_out_window(const std::filesystem::path& run, const network::ModelConfig& model, std::int64_t limit,
                                      std::string_view way_out);

// A remark when `text`, of which `window` is scored, was trained on by the run of this model: a whole file of it, or how much of the window
// stands in the training text too. "" when nothing did, there is no run directory to tell, or its text is not where it was.
std::string seen_in_training(const std::filesystem::path& run_or_file, const data::Corpus& text, const Window& window);

}  // namespace dormouse::cli
