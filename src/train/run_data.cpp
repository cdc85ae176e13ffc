#include "train/run_data.h"

#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/hash.h"

namespace dormouse::train {
namespace {

constexpr std::size_t kLongestListing = 64 * 1024;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

// Long listings are kept as their length and hash.
std::string shorten(const std::string& listing) {
  if (listing.size() <= kLongestListing) return listing;
  return fmt::format("{} lines, fnv1a {:016x}", lines_of(listing).size(), base::fnv1a(listing));
}

// The first line in which two listings differ.
std::string first_difference(const std::string& ours, const std::string& theirs) {
  const auto a = lines_of(ours), b = lines_of(theirs);
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string x = i < a.size() ? a[i] : "nothing", y = i < b.size() ? b[i] : "nothing";
    if (x != y) return fmt::format("then {}, now {}", base::escape(x), base::escape(y));
  }
  return "no difference";
}

}  // namespace

RunData open_data(const RunConfig& config, const std::filesystem::path& run_directory) {
  if (config.data.path.empty()) throw base::UsageError("what should it learn? give --data PATH, a file or a folder of text");
  data::CorpusOptions options;
  options.include = lines_of(config.data.include);
  options.exclude = lines_of(config.data.exclude);
  options.skip = {run_directory};
  const std::filesystem::path path(config.data.path);
  if (!config.data.eval_path.empty()) data::refuse_overlap(path, config.data.eval_path);

  RunData result;
  const data::Corpus corpus = data::find_corpus(path, options);
  result.found = corpus.summary();
  std::string identity = data::data_identity(corpus);
  const auto limit = static_cast<std::uint64_t>(config.train.eval_bytes);
  if (config.data.eval_path.empty()) {
    data::Split split = with_path(path, [&] { return data::carve(corpus, static_cast<std::uint64_t>(config.data.eval_tail)); });
    result.train = std::move(split.train);
    result.held_out_bytes = split.held_out.size();
    result.held_out = join(split.held_out_names);
    result.window = std::move(split.held_out);
    if (result.window.size() > limit) result.window.resize(limit);
  } else {
    data::CorpusOptions eval_options = options;
    eval_options.include.clear();
    eval_options.exclude.clear();
    const data::Corpus eval = data::find_corpus(config.data.eval_path, eval_options);
    result.train = corpus;
    result.held_out_bytes = eval.bytes;
    result.window = data::read_corpus(eval, limit);
    std::vector<std::string> names;
    for (const auto& file : eval.files) names.push_back(file.name);
    result.held_out = shorten(join(names));
    identity += "\neval\n" + data::data_identity(eval);
  }
  if (result.window.size() < 2) {
    throw base::Error(fmt::format("the held-out text has {} bytes; scoring needs at least 2", result.window.size()));
  }
  result.identity = shorten(identity);
  return result;
}

void bind_data(RunConfig& config, const RunData& data, bool resume, const std::string& run_name) {
  if (!resume) {
    config.data.identity = data.identity;
    config.data.held_out = data.held_out;
    return;
  }
  if (config.data.identity != data.identity) {
    throw base::Error(fmt::format("{} was trained on other data ({}); bring the files back, or start another run with --run",
                                  base::escape(run_name), first_difference(config.data.identity, data.identity)));
  }
  if (config.data.held_out != data.held_out) {
    throw base::Error(fmt::format("{} held out other text ({}); bring the files back, or start another run with --run",
                                  base::escape(run_name), first_difference(config.data.held_out, data.held_out)));
  }
}

}  // namespace dormouse::train
