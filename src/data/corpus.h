// A corpus: the regular files under a path, raw bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace dormouse::data {

struct CorpusFile {
  std::string name;            // path relative to the root ("" never; a single file: its file name)
  std::filesystem::path path;  // where to read it
  std::uint64_t size = 0;
  std::uint64_t skip_tail = 0;  // bytes at the end held out (never trained on)

  std::uint64_t bytes() const { return size - skip_tail; }  // what is trained on: [0, bytes())
};

struct CorpusOptions {
  // Globs: * (not /), ** (also /; a leading "**/" may match nothing), ? (one byte, not /), on the relative path, or on the file name
  // when the glob has no slash. include empty = all. An exclude that matches a directory prunes it.
  std::vector<std::string> include, exclude;
  std::vector<std::filesystem::path> skip;  // directories never entered (the run directory)
};

// What was found. Sorted by relative path (bytewise). Hidden entries, directory symlinks, build trees (a directory below the root with
// CMakeCache.txt), runs of this program (one with config.toml, metrics.jsonl and lock), empty files and everything that is not a regular
// readable file (a symlink counts as its target) are skipped and counted; nothing but a regular file is ever opened. What
// --include/--exclude leave out is not counted.
struct Corpus {
  std::vector<CorpusFile> files;
  std::uint64_t bytes = 0;  // sum of files[i].bytes()
  std::uint64_t skipped_hidden = 0, skipped_unreadable = 0, skipped_other = 0, skipped_trees = 0;
  std::string first_unreadable;  // in path order

  std::string summary() const;  // "412 files, 3.1 MB; skipped 1,204 hidden, 2 unreadable (first: a/b)"
};

// Nothing readable: base::Error naming the path and the reason (not found, empty, only hidden files, ...).
Corpus find_corpus(const std::filesystem::path& root, const CorpusOptions& options = {});

// Held-out text, carved at the first start. tail = 0: default rule, target = clamp(5% of the corpus, 16 KiB, 1 MiB) and never
// more than half: the tail of a single file, else whole files in path-hash order (fnv1a of the relative path) until the target is reached;
// a file that would carry the held-out text above twice the target or above half of the corpus gives its tail instead, up to the
// target. tail > 0: exactly the last `tail` bytes of the sorted concatenation. `train` loses what `held_out` gains and never ends up
// empty. Fewer than 4 bytes, or tail not below the corpus: base::Error. Reads the held-out files.
struct Split {
  Corpus train;
  std::vector<std::uint8_t> held_out;       // the bytes, in path order
  std::vector<std::string> held_out_names;  // "name" or "name[begin,end)", the name escaped, in path order
};
Split carve(const Corpus& corpus, std::uint64_t tail = 0);

// The whole of a corpus's training bytes, in file order (anchors; corpora that fit). Larger than limit: the first `limit` bytes.
std::vector<std::uint8_t> read_corpus(const Corpus& corpus, std::uint64_t limit = UINT64_MAX);

// Refuses (base::Error) when one path contains the other or they are the same.
void refuse_overlap(const std::filesystem::path& train, const std::filesystem::path& eval);

// What a resume compares: one line per file "size crc(first 64 KiB) crc(middle 64 KiB) crc(last 64 KiB) skip_tail name", the name escaped,
// CRC-32 in hex, each over the whole file when that is shorter.
std::string data_identity(const Corpus& corpus);

}  // namespace dormouse::data
