// The text a run scores itself on, found again from its directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
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

// The first file of `text` that the run of this model trained on, escaped; "" when there is none, or no run directory to tell.
std::string trained_on(const std::filesystem::path& run_or_file, const data::Corpus& text);

// How much of `scored` stands in the training text of the run of this model, as train::overlap_text says it; "" when there is no run
// directory or its text is not where it was.
std::string overlap_text(const std::filesystem::path& run_or_file, std::span<const std::uint8_t> scored);

}  // namespace dormouse::cli
