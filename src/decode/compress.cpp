#include "decode/compress.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "decode/distribution.h"
#include "decode/range_coder.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu_level.h"

namespace dormouse::decode {
namespace {

constexpr std::size_t kMostLanes = 16;

static_assert(std::endian::native == std::endian::little, "checksums are of little-endian values");

[[noreturn]] void refuse_logits() {
  throw base::Error(
      "the model's logits are not finite, so it cannot code this text; its weights are out of range: train or export it anew");
}

Identity identify(const network::Weights& weights, std::uint32_t crc) {
  Identity out{.model_crc = crc, .probe_crc = 0, .cpu_level = ops::cpu_level()};
  Lanes lane(weights, 1);
  Counts counts;
  for (unsigned i = 0; i < 256; ++i) {
    const auto byte = static_cast<std::uint8_t>(i * 167 + 13);  // every byte once: 167 is odd
    lane.step({&byte, 1});
    if (!quantise(lane.logits(0), counts)) refuse_logits();
    out.probe_crc = base::crc32({reinterpret_cast<const std::uint8_t*>(counts.data()), sizeof counts}, out.probe_crc);
  }
  return out;
}

std::size_t read_up_to(const ReadBytes& read, std::vector<std::uint8_t>& out, std::size_t count) {
  out.clear();
  constexpr std::size_t kPiece = 1U << 16;
  while (out.size() < count) {
    const std::size_t at = out.size();
    out.resize(at + std::min(kPiece, count - at));
    const std::size_t got = read(std::span(out).subspan(at));
    out.resize(at + got);
    if (got == 0) break;
  }
  return out.size();
}

}  // namespace

// A block on its way through the model.
struct Compressor::Job {
  std::uint8_t before = 0;
  std::size_t length = 0;
  std::vector<std::uint8_t> text;  // the original: given, or growing
  RangeEncoder encoder;
  RangeDecoder decoder{std::span<const std::uint8_t>()};
  bool damaged = false;

  void take(const Counts& counts, std::uint8_t byte) {
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < byte; ++i) begin += counts[i];
    encoder.put(begin, counts[byte]);
  }
  void give(const Counts& counts) {
    const std::uint64_t point = decoder.point();
    damaged = damaged || point >= kCodeTotal;
    std::uint64_t begin = 0;
    std::size_t byte = 0;
    while (byte < 255 && begin + counts[byte] <= point) begin += counts[byte++];
    decoder.take(begin, counts[byte]);
    text.push_back(static_cast<std::uint8_t>(byte));
  }
};

Compressor::Compressor(const network::Weights& weights, std::uint32_t crc) : weights_(weights), identity_(identify(weights, crc)) {}

Lanes& Compressor::lanes(std::size_t count) {
  if (!lanes_ || lanes_->count() < count) lanes_.emplace(weights_, count);
  return *lanes_;
}

void Compressor::encode(Job& job) {
  std::vector<std::uint8_t> read = {job.before};
  read.insert(read.end(), job.text.begin(), job.text.end() - 1);
  lanes(1).restart(0);
  std::vector<Counts> counts;
  std::size_t at = 0;
  lanes_->read(0, read, [&](std::span<const float> logits) {
    counts.resize(logits.size() / 256);
    std::atomic<bool> finite = true;
    const auto size = static_cast<std::int64_t>(counts.size());
    ops::cpu::for_ranges(size, 1, size * 4096, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        if (!quantise(logits.subspan(i * 256, 256), counts[i])) finite = false;
      }
    });
    if (!finite) refuse_logits();
    for (const Counts& one : counts) job.take(one, job.text[at++]);
    done_ += counts.size();
    if (progress) progress(done_);
  });
}

// jobs: none shorter than the next one.
void Compressor::decode(std::vector<Job>& jobs) {
  if (jobs.empty()) return;
  lanes(jobs.size()).restart();
  std::vector<std::uint8_t> bytes(jobs.size());
  std::atomic<bool> finite = true;
  for (std::size_t at = 0, active = jobs.size(); at < jobs[0].length; ++at) {
    while (jobs[active - 1].length <= at) --active;
    for (std::size_t i = 0; i < active; ++i) bytes[i] = at == 0 ? jobs[i].before : jobs[i].text[at - 1];
    lanes_->step(std::span(bytes).first(active));
    const auto count = static_cast<std::int64_t>(active);
    ops::cpu::for_ranges(count, 1, count * 4096, [&](std::int64_t begin, std::int64_t end) {
      Counts counts;
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        if (!quantise(lanes_->logits(i), counts)) {
          finite = false;
          return;
        }
        jobs[i].give(counts);
      }
    });
    if (!finite) refuse_logits();
    done_ += active;
    if (progress && at % 256 == 255) progress(done_);
  }
}

CompressStats Compressor::compress(const ReadBytes& original, const WriteBytes& archive, const CompressOptions& options) {
  if (options.block == 0 || options.block > kLargestBlock)
    throw base::UsageError("--block " + std::to_string(options.block) + ": must be 1 to " + std::to_string(kLargestBlock) + " bytes");
  done_ = 0;
  CompressStats stats;
  std::vector<std::uint8_t> text;
  ArchiveHeader header{.block = options.block,
                       .model_crc = identity_.model_crc,
                       .probe_crc = identity_.probe_crc,
                       .size = options.size.value_or(kUnknownSize),
                       .cpu_level = identity_.cpu_level,
                       .first = 0};
  std::uint8_t before = 0;
  std::uint32_t crc = 0;
  if (read_up_to(original, text, 1) == 1) {
    header.first = before = text[0];
    crc = base::crc32(text);
    stats.original = 1;
  } else {
    header.size = 0;
  }
  ArchiveWriter writer(header, archive);
  for (bool more = stats.original > 0; more;) {
    const std::size_t wanted = kMostLanes * options.block;
    more = read_up_to(original, text, wanted) == wanted;
    crc = base::crc32(text, crc);
    stats.original += text.size();
    std::vector<Job> jobs;
    for (std::size_t at = 0; at < text.size(); at += options.block) {
      Job job;
      job.before = before;
      job.length = std::min<std::size_t>(options.block, text.size() - at);
      job.text.assign(text.begin() + static_cast<std::ptrdiff_t>(at), text.begin() + static_cast<std::ptrdiff_t>(at + job.length));
      before = job.text.back();
      jobs.push_back(std::move(job));
    }
    for (Job& job : jobs) encode(job);
    for (auto& job : jobs) {
      ArchiveBlock block{.length = static_cast<std::uint32_t>(job.length),
                         .crc = base::crc32(job.text),
                         .before = job.before,
                         .message = job.encoder.finish()};
      if (block.message.size() >= job.length) {
        block.message = std::move(job.text);
        ++stats.raw_blocks;
      } else {
        stats.coded_bytes += job.length;
        stats.coded_message += block.message.size();
      }
      ++stats.blocks;
      writer.put(block);
    }
  }
  if (options.size && stats.original != *options.size)
    throw base::Error("the original is " + std::to_string(stats.original) + " bytes long and was " + std::to_string(*options.size) +
                      " at the start: it changed while it was read");
  writer.finish(stats.original, crc);
  stats.archive = writer.written();
  return stats;
}

void Compressor::refuse_other(const ArchiveReader& archive) const {
  const ArchiveHeader& header = archive.header();
  if (header.model_crc != identity_.model_crc)
    throw base::Error(archive.name() + " was compressed with another model than " + base::escape(weights_.path.string(), 1024) +
                      "; give the one it was compressed with");
  if (header.probe_crc == identity_.probe_crc) return;
  if (header.cpu_level != identity_.cpu_level)
    throw base::Error(archive.name() + " was compressed at CPU level " + header.cpu_level + " and this is " + identity_.cpu_level +
                      ", which rounds otherwise; add --cpu " + header.cpu_level);
  throw base::Error(archive.name() +
                    " was compressed with this model by a dormouse whose arithmetic rounds otherwise; use that version, and " +
                    "the machine it ran on if there is a choice");
}

CompressStats Compressor::decompress(ArchiveReader& archive, const WriteBytes& original) {
  refuse_other(archive);
  done_ = 0;
  CompressStats stats;
  std::uint32_t crc = 0;
  std::uint8_t before = archive.header().first;
  const auto write = [&](std::span<const std::uint8_t> bytes) {
    crc = base::crc32(bytes, crc);
    stats.original += bytes.size();
    original(bytes);
  };
  const auto changed = [&] {
    throw base::Damaged(archive.name() + " has a block, number " + std::to_string(stats.blocks) +
                        ", that does not become what was compressed; it was changed, or this machine rounds otherwise");
  };
  if (archive.header().size != 0) write({&before, 1});
  for (bool more = true; more;) {
    std::vector<ArchiveBlock> blocks;
    std::vector<Job> jobs;
    for (ArchiveBlock block; blocks.size() < kMostLanes && (more = archive.next(block));) blocks.push_back(std::move(block));
    for (const auto& block : blocks) {
      if (block.raw()) continue;
      Job job;
      job.before = block.before;
      job.length = block.length;
      job.decoder = RangeDecoder(block.message);
      jobs.push_back(std::move(job));
    }
    decode(jobs);
    auto job = jobs.begin();
    for (auto& block : blocks) {
      const auto& text = block.raw() ? block.message : job->text;
      const bool whole = block.raw() || (!job->damaged && job->decoder.complete());
      if (!whole || block.before != before || base::crc32(text) != block.crc) changed();
      before = text.back();
      ++stats.blocks;
      if (block.raw()) {
        ++stats.raw_blocks;
      } else {
        stats.coded_bytes += block.length;
        stats.coded_message += block.message.size();
        ++job;
      }
      write(text);
    }
  }
  if (crc != archive.original_crc())
    throw base::Damaged(archive.name() + " does not become what was compressed (checksum); it was changed after it was written");
  stats.archive = archive.archive_size();
  return stats;
}

}  // namespace dormouse::decode
