// What a run trains on and what it holds out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/corpus.h"
#include "train/config.h"

namespace dormouse::train {

struct RunData {
  data::Corpus train;
  std::vector<std::uint8_t> window;  // the held-out bytes that are scored, at most eval_bytes
  std::uint64_t held_out_bytes = 0;  // all of them
  std::string found;                 // "412 files, 3.1 MB; ..."
  std::string identity;              // compared on a resume
  std::string held_out;              // names, one per line
};

// Finds the corpus, carves or reads the held-out text, checks that they do not overlap.
RunData open_data(const RunConfig& config, const std::filesystem::path& run_directory);

// Runs `work`; errors that do not name the data get its path in front.
template <class Work>
auto with_path(const std::filesystem::path& path, Work&& work) {
  try {
    return work();
  } catch (const base::Error& error) {
    const std::string name = base::escape(path.string()), what = error.what();
    if (what.find(name) != std::string::npos) throw;
    throw base::Error(name + ": " + what);
  }
}

// Of a text that is scored, how much stands in the training text too: "3% of it stands in ...", with a warning from half on; "" below 1%.
std::string overlap_text(const data::Corpus& train, std::span<const std::uint8_t> scored);

// The first file of `text` that a run with this data trained on, by its size and checksums, escaped; "" when there is none, or when the
// run has too many files to be listed.
std::string trained_on(const DataConfig& data, const data::Corpus& text);

// In what the data found now are not those of the run: a clause that names it and one file, "" when they are the same; and the flags of
// train that say where moved files are, "" when none does.
struct OtherData {
  std::string what, flags;
};
OtherData other_data(const RunConfig& config, const RunData& data, const std::string& run_name);

// Writes identity and names into a new run's config; on a resume refuses other data.
void bind_data(RunConfig& config, const RunData& data, bool resume, const std::string& run_name);

}  // namespace dormouse::train
