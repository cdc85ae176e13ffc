#include "train/run_data.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "data/overlap.h"

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

// A line of data::data_identity.
struct Listed {
  std::string size, checksums, name;
  bool operator==(const Listed&) const = default;
};

// An identity; nothing in it when only its length and hash were kept.
struct Listing {
  std::vector<Listed> train, eval;
};

constexpr std::string_view kEvalMark = "eval";

Listing listing_of(const std::string& identity) {
  Listing out;
  auto* part = &out.train;
  for (const auto& line : lines_of(identity)) {
    std::istringstream words(line);
    Listed file;
    std::string crc[3], skip_tail;
    if (words >> file.size >> crc[0] >> crc[1] >> crc[2] >> skip_tail && words.get() == ' ' && std::getline(words, file.name)) {
      file.checksums = crc[0] + crc[1] + crc[2];
      part->push_back(file);
    } else if (line == kEvalMark) {
      part = &out.eval;
    }
  }
  return out;
}

// A file in which two lists differ, and how.
std::string first_difference(const std::vector<Listed>& then, const std::vector<Listed>& now) {
  const auto count = [](const std::string& digits) { return base::human_count(std::strtoull(digits.c_str(), nullptr, 10)); };
  const auto holds = [](const std::vector<Listed>& files, const std::string& name) {
    return std::any_of(files.begin(), files.end(), [&](const Listed& file) { return file.name == name; });
  };
  for (const auto& file : then)
    if (!holds(now, file.name)) return file.name + " is not there any more";
  for (const auto& file : now)
    if (!holds(then, file.name)) return file.name + " is new";
  for (std::size_t i = 0; i < std::min(then.size(), now.size()); ++i) {
    const auto &old = then[i], &file = now[i];
    if (old.size != file.size) return fmt::format("{} has {} bytes and had {}", file.name, count(file.size), count(old.size));
    if (old.checksums != file.checksums) return file.name + " has as many bytes as then, but others";
  }
  return "its list of files is another";
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
    identity += fmt::format("\n{}\n", kEvalMark) + data::data_identity(eval);
  }
  if (result.window.size() < 2) {
    throw base::Error(fmt::format("the held-out text has {} bytes; scoring needs at least 2", result.window.size()));
  }
  result.identity = shorten(identity);
  return result;
}

std::string overlap_text(const data::Corpus& train, std::span<const std::uint8_t> scored) {
  constexpr std::uint64_t kMost = 128U << 20;  // half a second, from the page cache
  const data::Overlap overlap = data::find_overlap(train, scored, kMost);
  if (overlap.share() < 0.01) return "";
  const std::string where = overlap.searched < train.bytes ? "the first " + base::human_bytes(overlap.searched) + " of " : "";
  const bool mostly = overlap.share() >= 0.5;
  return fmt::format("{}{:.0f}% of it stands in {}the training text too: {}", mostly ? "WARNING: " : "", 100 * overlap.share(), where,
                     mostly ? "its BPB says how well that is remembered, not how well other text is predicted"
                            : "other text is predicted a little less well");
}

std::string trained_on(const DataConfig& data, const data::Corpus& text) {
  // --eval names files of another folder.
  const auto held_out = data.eval_path.empty() ? lines_of(data.held_out) : std::vector<std::string>();
  const auto ours = listing_of(data.identity).train;
  for (const auto& file : listing_of(data::data_identity(text)).train) {
    const bool trained = std::any_of(ours.begin(), ours.end(), [&](const Listed& known) {
      return known.size == file.size && known.checksums == file.checksums &&
             std::find(held_out.begin(), held_out.end(), known.name) == held_out.end();
    });
    if (trained) return file.name;
  }
  return "";
}

OtherData other_data(const RunConfig& config, const RunData& data, const std::string& run_name) {
  const std::string run = base::escape(run_name), path = base::escape(config.data.path), eval = base::escape(config.data.eval_path);
  if (config.data.identity != data.identity) {
    const Listing then = listing_of(config.data.identity), now = listing_of(data.identity);
    if (then.train.empty() || now.train.empty()) {
      return {fmt::format("{} began with other data than {} holds now: which of the files differ is not known, they were too many to list",
                          run, eval.empty() ? path : path + " or " + eval),
              eval.empty() ? "--data" : "--data or --eval"};
    }
    if (then.train == now.train && then.eval != now.eval && !eval.empty())
      return {fmt::format("the held-out text {} of {} changed: {}", eval, run, first_difference(then.eval, now.eval)), "--eval"};
    return {fmt::format("{} was trained on other data than {} holds now: {}", run, path, first_difference(then.train, now.train)),
            "--data"};
  }
  if (config.data.held_out != data.held_out)
    return {fmt::format("{} held out other text ({})", run, first_difference(config.data.held_out, data.held_out)), ""};
  return {};
}

void bind_data(RunConfig& config, const RunData& data, bool resume, const std::string& run_name) {
  if (!resume) {
    config.data.identity = data.identity;
    config.data.held_out = data.held_out;
    return;
  }
  const auto [what, flags] = other_data(config, data, run_name);
  if (what.empty()) return;
  const std::string moved = flags.empty() ? "" : fmt::format(", give {} with the path they moved to", flags);
  throw base::Error(fmt::format("{}; bring the files back{}, or start another run with --run", what, moved));
}

}  // namespace dormouse::train
