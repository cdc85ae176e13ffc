#include "data/corpus.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "data/glob.h"

namespace dormouse::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNameLimit = 1024;  // bytes of a path shown in a message

std::string shown(const fs::path& path) { return '"' + base::escape(path.native(), kNameLimit) + '"'; }

bool readable(const fs::path& path) { return ::faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) == 0; }

bool any_matches(const std::vector<std::string>& globs, std::string_view name) {
  return std::ranges::any_of(globs, [&](const std::string& glob) { return glob_matches(glob, name); });
}

struct Walk {
  const CorpusOptions& options;
  std::vector<std::pair<dev_t, ino_t>> skip;
  Corpus corpus;
  std::uint64_t left_out = 0;  // by the globs
  struct Directory {
    fs::path path;
    std::string name;  // "" the root
  };
  std::vector<Directory> pending;

  explicit Walk(const CorpusOptions& wanted) : options(wanted) {
    for (const fs::path& path : options.skip) {
      struct stat status = {};
      if (::stat(path.c_str(), &status) == 0) skip.emplace_back(status.st_dev, status.st_ino);
    }
  }

  void unreadable(const std::string& name) {
    if (corpus.skipped_unreadable++ == 0 || name < corpus.first_unreadable) corpus.first_unreadable = name;
  }

  void enter(const Directory& directory) {
    std::error_code error;
    fs::directory_iterator entries(directory.path, error);
    if (error) {
      unreadable(directory.name.empty() ? "." : directory.name);
      return;
    }
    std::vector<fs::path> children;
    for (const fs::directory_iterator end; entries != end; entries.increment(error)) {
      if (error) break;
      children.push_back(entries->path());
    }
    if (error) unreadable(directory.name.empty() ? "." : directory.name);
    const auto has = [&](std::string_view name) {
      return std::ranges::any_of(children, [&](const fs::path& path) { return path.filename() == name; });
    };
    const bool build_tree = has("CMakeCache.txt");
    const bool run = has("config.toml") && has("metrics.jsonl") && has("lock");
    if (!directory.name.empty() && (build_tree || run)) {
      ++corpus.skipped_trees;
      return;
    }
    for (const fs::path& path : children) visit(path, directory.name.empty() ? "" : directory.name + "/");
  }

  void visit(const fs::path& path, const std::string& prefix) {
    const std::string leaf = path.filename().native(), name = prefix + leaf;
    if (leaf.starts_with('.')) {
      ++corpus.skipped_hidden;
      return;
    }
    struct stat status = {};
    if (::lstat(path.c_str(), &status) != 0) return unreadable(name);
    const bool link = S_ISLNK(status.st_mode);
    if (link && ::stat(path.c_str(), &status) != 0) return unreadable(name);  // dangling, a loop, a closed directory
    if (S_ISDIR(status.st_mode)) {
      if (link) {
        ++corpus.skipped_other;
      } else if (any_matches(options.exclude, name)) {
        ++left_out;
      } else if (std::ranges::find(skip, std::pair(status.st_dev, status.st_ino)) == skip.end()) {
        pending.push_back({path, name});
      }
      return;
    }
    if (!S_ISREG(status.st_mode)) {
      ++corpus.skipped_other;
      return;
    }
    if (any_matches(options.exclude, name) || (!options.include.empty() && !any_matches(options.include, name))) {
      ++left_out;
      return;
    }
    if (!readable(path)) return unreadable(name);
    if (status.st_size <= 0) {
      ++corpus.skipped_other;
      return;
    }
    corpus.files.push_back({name, path, static_cast<std::uint64_t>(status.st_size), 0});
  }
};

std::string skipped_text(const Corpus& corpus, std::uint64_t left_out) {
  std::string out;
  const auto add = [&](std::uint64_t count, std::string_view what) {
    if (count > 0) out += (out.empty() ? "" : ", ") + base::human_count(count) + " " + std::string(what);
  };
  add(corpus.skipped_hidden, "hidden");
  add(corpus.skipped_unreadable, "unreadable");
  if (corpus.skipped_unreadable > 0) out += " (first: " + base::escape(corpus.first_unreadable, kNameLimit) + ")";
  add(corpus.skipped_other, "empty or not a regular file");
  add(corpus.skipped_trees, corpus.skipped_trees == 1 ? "build tree or run" : "build trees or runs");
  add(left_out, "left out by --include/--exclude");
  return out;
}

Corpus one_file(const fs::path& root, const struct stat& status) {
  if (!readable(root)) throw base::Error("cannot read the corpus " + shown(root) + ": " + std::strerror(errno));
  if (status.st_size <= 0) throw base::Error("the corpus " + shown(root) + " is an empty file; give a file or a directory with text");
  Corpus corpus;
  corpus.bytes = static_cast<std::uint64_t>(status.st_size);
  corpus.files.push_back({root.filename().native(), root, corpus.bytes, 0});
  return corpus;
}

}  // namespace

std::string Corpus::summary() const {
  std::string out = base::human_count(files.size()) + (files.size() == 1 ? " file, " : " files, ") + base::human_bytes(bytes);
  const std::string skipped = skipped_text(*this, 0);
  return skipped.empty() ? out : out + "; skipped " + skipped;
}

Corpus find_corpus(const fs::path& root, const CorpusOptions& options) {
  struct stat status = {};
  if (::stat(root.c_str(), &status) != 0) {
    throw base::Error("cannot read the corpus " + shown(root) + ": " + std::strerror(errno) + "; give a file or a directory of files");
  }
  if (S_ISREG(status.st_mode)) return one_file(root, status);
  if (!S_ISDIR(status.st_mode))
    throw base::Error("the corpus " + shown(root) + " is neither a regular file nor a directory; give one of these");

  Walk walk(options);
  walk.pending.push_back({root, ""});
  while (!walk.pending.empty()) {
    const Walk::Directory directory = std::move(walk.pending.back());
    walk.pending.pop_back();
    walk.enter(directory);
  }
  Corpus& corpus = walk.corpus;
  if (corpus.files.empty()) {
    const std::string skipped = skipped_text(corpus, walk.left_out);
    throw base::Error("no readable file in the corpus " + shown(root) + ": " + (skipped.empty() ? "it is empty" : "skipped " + skipped) +
                      "; give a file or a directory with text");
  }
  std::ranges::sort(corpus.files, {}, &CorpusFile::name);
  for (const CorpusFile& file : corpus.files) corpus.bytes += file.size;
  return std::move(corpus);
}

}  // namespace dormouse::data
