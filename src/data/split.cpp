// Held-out text, whole reads, and the identity of a corpus.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "data/corpus.h"

namespace dormouse::data {
namespace {

constexpr std::uint64_t kLeast = 4;  // bytes that can be split
constexpr std::uint64_t kSample = 64 << 10;
constexpr std::size_t kNameLimit = 1 << 16;

// take[i]: bytes at the end of file i to hold out.
std::vector<std::uint64_t> default_rule(const Corpus& corpus) {
  const std::uint64_t half = corpus.bytes / 2;
  const std::uint64_t target = std::min(half, std::clamp<std::uint64_t>(corpus.bytes / 20, 16 << 10, 1 << 20));
  const std::uint64_t ceiling = std::min(2 * target, half);
  std::vector<std::uint64_t> take(corpus.files.size());
  std::vector<std::size_t> order(take.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(base::fnv1a(corpus.files[i].name), i); });
  std::uint64_t held = 0;
  for (const std::size_t i : order) {
    if (held >= target) break;
    const std::uint64_t bytes = corpus.files[i].bytes();
    const bool whole = take.size() > 1 && held + bytes <= ceiling;
    take[i] = whole ? bytes : std::min(bytes, target - held);
    held += take[i];
  }
  return take;
}

std::vector<std::uint64_t> tail_rule(const Corpus& corpus, std::uint64_t tail) {
  std::vector<std::uint64_t> take(corpus.files.size());
  for (std::size_t i = take.size(); i-- > 0 && tail > 0;) {
    take[i] = std::min(tail, corpus.files[i].bytes());
    tail -= take[i];
  }
  return take;
}

std::string crc_text(const base::File& file, std::uint64_t offset, std::uint64_t length) {
  std::vector<std::uint8_t> bytes(length);
  file.read_exactly_at(offset, bytes);
  char text[9];
  std::snprintf(text, sizeof text, "%08x", base::crc32(bytes));
  return text;
}

}  // namespace

Split carve(const Corpus& corpus, std::uint64_t tail) {
  if (corpus.bytes < kLeast) {
    throw base::Error("a corpus of " + base::human_count(corpus.bytes, "byte") + " is too small to hold out a part; give more text");
  }
  if (tail >= corpus.bytes) {
    throw base::Error("cannot hold out the last " + base::human_count(tail) + " bytes of a corpus of " + base::human_count(corpus.bytes) +
                      "; nothing would be left to train on");
  }
  const std::vector<std::uint64_t> take = tail > 0 ? tail_rule(corpus, tail) : default_rule(corpus);
  Split split;
  split.train = corpus;
  split.train.files.clear();
  for (std::size_t i = 0; i < take.size(); ++i) {
    CorpusFile file = corpus.files[i];
    if (take[i] > 0) {
      const std::uint64_t end = file.bytes(), begin = end - take[i];
      const std::size_t at = split.held_out.size();
      split.held_out.resize(at + take[i]);
      base::File::open_read(file.path).read_exactly_at(begin, std::span(split.held_out).subspan(at));
      std::string name = base::escape(file.name, kNameLimit);
      if (begin > 0 || file.skip_tail > 0) name += "[" + std::to_string(begin) + "," + std::to_string(end) + ")";
      split.held_out_names.push_back(std::move(name));
      file.skip_tail += take[i];
      split.train.bytes -= take[i];
    }
    if (file.bytes() > 0) split.train.files.push_back(std::move(file));
  }
  return split;
}

std::vector<std::uint8_t> read_corpus(const Corpus& corpus, std::uint64_t limit) {
  std::vector<std::uint8_t> out;
  out.reserve(std::min(corpus.bytes, limit));
  for (const CorpusFile& file : corpus.files) {
    const std::uint64_t want = std::min(file.bytes(), limit - out.size());
    if (want == 0) continue;
    const std::size_t at = out.size();
    out.resize(at + want);
    base::File::open_read(file.path).read_exactly_at(0, std::span(out).subspan(at));
  }
  return out;
}

void refuse_overlap(const std::filesystem::path& train, const std::filesystem::path& eval) {
  const auto normal = [](const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::path out = std::filesystem::weakly_canonical(path, error);
    if (error) throw base::Error("cannot resolve \"" + base::escape(path.native(), 1024) + "\": " + error.message());
    return out.has_filename() ? out : out.parent_path();
  };
  const std::filesystem::path a = normal(train), b = normal(eval);
  const auto [at_a, at_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  std::error_code ignored;
  if (at_a == a.end() || at_b == b.end() || std::filesystem::equivalent(a, b, ignored)) {
    throw base::Error("training text \"" + base::escape(train.native(), 1024) + "\" and held-out text \"" +
                      base::escape(eval.native(), 1024) +
                      "\" overlap; the held-out text must not be trained on: move it outside, or leave --eval out");
  }
}

std::string data_identity(const Corpus& corpus) {
  std::string out;
  for (const CorpusFile& entry : corpus.files) {
    const base::File file = base::File::open_read(entry.path);
    const std::uint64_t sample = std::min(entry.size, kSample);
    out += std::to_string(entry.size) + " " + crc_text(file, 0, sample) + " " + crc_text(file, (entry.size - sample) / 2, sample) + " " +
           crc_text(file, entry.size - sample, sample) + " " + std::to_string(entry.skip_tail) + " " +
           base::escape(entry.name, kNameLimit) + "\n";
  }
  return out;
}

}  // namespace dormouse::data
