#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "decode/compress.h"
#include "format/kind.h"
#include "network/dormouse/weights.h"
#include "report/metrics.h"
#include "train/signals.h"

namespace dormouse::cli {
namespace {

struct Flags {
  std::string model, in, out, block;
  bool stats = false;
  Machine machine;
};

std::string shown(const std::string& path, const char* stream) { return path == "-" ? stream : base::escape(path, 1024); }

// A regular file as it was when it was opened, or stdin.
class Input {
 public:
  Input(const std::string& path, const char* wanted) : name_(shown(path, "stdin")) {
    if (path == "-") return;
    format::require_regular(path, wanted, "give a file, or - for stdin");
    file_.emplace(base::File::open_read(path));
    size_ = file_->size();
  }
  const std::string& name() const { return name_; }
  std::optional<std::uint64_t> size() const { return file_ ? std::optional(size_) : std::nullopt; }
  void rewind() { at_ = 0; }
  std::size_t read(std::span<std::uint8_t> out) {
    if (!file_) {
      const std::size_t got = std::fread(out.data(), 1, out.size(), stdin);
      if (got < out.size() && std::ferror(stdin) != 0)
        throw base::Error(fmt::format("cannot read stdin: {}; give a file or a pipe", std::strerror(errno)));
      return got;
    }
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), size_ - at_));
    file_->read_exactly_at(at_, out.first(count));
    at_ += count;
    return count;
  }

 private:
  std::string name_;
  std::optional<base::File> file_;
  std::uint64_t size_ = 0, at_ = 0;
};

void refuse_overwriting(const std::string& out, const std::filesystem::path& other, const char* what) {
  std::error_code ignored;
  if (out != "-" && std::filesystem::equivalent(out, other, ignored))
    throw base::UsageError(fmt::format("OUT {} is {}; give it another name", base::escape(out, 1024), what));
}

// Calls work(write): into a temporary that takes the name of `out` when work returns, or to stdout as it comes.
void write_output(const std::string& out, const std::function<void(const decode::WriteBytes&)>& work) {
  if (out == "-") {
    work([](std::span<const std::uint8_t> bytes) { print({reinterpret_cast<const char*>(bytes.data()), bytes.size()}); });
    return;
  }
  base::write_file_atomically(out, [&](base::File& file) {
    work([&](std::span<const std::uint8_t> bytes) { file.write(bytes); });
    base::clear_progress();
  });
}

struct Work {
  network::Weights weights;
  std::uint32_t crc = 0;
  std::unique_ptr<decode::Compressor> compressor = {};
};

Work prepare(const Flags& flags) {
  if (flags.machine.json && flags.out == "-")
    throw base::UsageError("--json prints on stdout, where OUT - puts the bytes; give OUT a name");
  flags.machine.apply();
  const auto file = network::load_export(flags.model);
  refuse_overwriting(flags.out, file.path, "the model");
  if (flags.in != "-") refuse_overwriting(flags.out, flags.in, "IN itself");
  return {network::read_weights(file), network::weights_crc(file)};
}

void start(Work& work, std::optional<std::uint64_t> size, const char* doing) {
  work.compressor = std::make_unique<decode::Compressor>(work.weights, work.crc);
  if (!size || *size == 0) return;
  work.compressor->progress = [total = *size, doing](std::uint64_t bytes) {
    base::show_progress(std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total)), doing);
  };
}

void report_stats(const Flags& flags, const std::string& from, const decode::CompressStats& stats, double seconds, bool compressed) {
  base::clear_progress();
  const double rate = seconds > 0 ? static_cast<double>(stats.original) / seconds : 0;
  const auto bits = [](std::uint64_t part, std::uint64_t whole) {
    return whole > 0 ? 8 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  const auto count = [](std::uint64_t n) { return base::human_count(n); };
  if (flags.machine.json) {
    const auto whole = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
    const std::vector<report::Metric> metrics = {{"original_bytes", whole(stats.original)},
                                                 {"archive_bytes", whole(stats.archive)},
                                                 {"bits_per_byte", bits(stats.archive, stats.original)},
                                                 {"blocks", whole(stats.blocks)},
                                                 {"raw_blocks", whole(stats.raw_blocks)},
                                                 {"coded_bytes", whole(stats.coded_bytes)},
                                                 {"message_bytes", whole(stats.coded_message)},
                                                 {"message_bpb", bits(stats.coded_message, stats.coded_bytes)},
                                                 {"seconds", seconds}};
    print(report::to_json(metrics) + "\n");
    return;
  }
  const std::uint64_t before = compressed ? stats.original : stats.archive, after = compressed ? stats.archive : stats.original;
  base::log_line(
      fmt::format("{}: {} -> {} bytes ({:.4f} bits per byte)", from, count(before), count(after), bits(stats.archive, stats.original)));
  if (!flags.stats) return;
  base::log_line(fmt::format("{}, {} of them raw; {} bytes coded in {} ({:.4f} bits per byte), {} of headers, checksums and raw bytes",
                             base::human_count(stats.blocks, "block"), count(stats.raw_blocks), count(stats.coded_bytes),
                             count(stats.coded_message), bits(stats.coded_message, stats.coded_bytes),
                             count(stats.archive - stats.coded_message)));
  base::log_line(fmt::format("{:.3f} s ({} bytes/s)", seconds, count(static_cast<std::uint64_t>(rate))));
}

int compress(const Flags& flags) {
  train::watch_signals();
  decode::CompressOptions options;
  if (!flags.block.empty()) options.block = static_cast<std::uint32_t>(base::parse_count(flags.block, "--block", 1, decode::kLargestBlock));
  Input in(flags.in, "a file to compress");
  auto work = prepare(flags);
  start(work, in.size(), "compressing");
  options.size = in.size();
  const auto begin = base::Clock::now();
  decode::CompressStats stats;
  write_output(flags.out, [&](const decode::WriteBytes& write) {
    stats = work.compressor->compress([&](std::span<std::uint8_t> out) { return in.read(out); }, write, options);
  });
  report_stats(flags, in.name(), stats, base::seconds_since(begin), true);
  return 0;
}

int decompress(const Flags& flags) {
  train::watch_signals();
  Input in(flags.in, "a file that dormouse compress wrote");
  const auto read = [&](std::span<std::uint8_t> out) { return in.read(out); };
  std::optional<std::uint64_t> size;
  if (in.size()) {  // lengths and checksum of the whole file before any work
    decode::ArchiveReader archive(read, in.name());
    for (decode::ArchiveBlock block; archive.next(block);) continue;
    size = archive.original_size();
    in.rewind();
  }
  auto work = prepare(flags);
  decode::ArchiveReader archive(read, in.name());
  start(work, size, "decompressing");
  const auto begin = base::Clock::now();
  decode::CompressStats stats;
  write_output(flags.out, [&](const decode::WriteBytes& write) { stats = work.compressor->decompress(archive, write); });
  report_stats(flags, in.name(), stats, base::seconds_since(begin), false);
  return 0;
}

Command add(CLI::App& app, const char* name, const char* doc, Flags& flags) {
  Command command(app, name, doc);
  command.required("model,-m,--model", flags.model, "export (.dmexp), or a run directory: its model.dmexp", "MODEL");
  command.required("in", flags.in, "file to read, - for stdin", "IN");
  command.required("out", flags.out, "file to write, - for stdout", "OUT");
  command.flag("--stats", flags.stats, "print blocks, sizes and speed at the end");
  flags.machine.add(command, false);
  return command;
}

}  // namespace

void add_compress(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  Command command = add(app, "compress", "any file, in the bits a model needs to predict it", *flags);
  command.optional("--block", flags->block, "bytes coded from one state, at most 1Mi (default 16Ki)", "BYTES");
  command.footer(
      "OUT appears when it is complete. Only the same export, CPU level and arithmetic read it again.\n"
      "Examples:\n"
      "  dormouse compress runs/a book.txt book.dmz --stats\n"
      "  tar c notes | dormouse compress a.dmexp - notes.tar.dmz");
  command.action(context, [flags] { return compress(*flags); });

  auto other = std::make_shared<Flags>();
  Command back = add(app, "decompress", "what compress wrote, byte for byte", *other);
  back.footer(
      "OUT appears when it is complete and its checksum holds. On stdout every block has been checked before it is written; the whole is\n"
      "complete only when the exit code is 0.\n"
      "Example:\n"
      "  dormouse decompress runs/a book.dmz book.txt");
  back.action(context, [other] { return decompress(*other); });
}

}  // namespace dormouse::cli
