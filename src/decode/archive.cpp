#include "decode/archive.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "format/kind.h"

namespace dormouse::decode {
namespace {

constexpr std::string_view kMagic = "DMPRESS";
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 44, kBlockBytes = 13, kTrailerBytes = 16, kLevelBytes = 8;

// As many bytes as there are: a reader may give fewer at a time.
std::size_t fill(const ReadBytes& read, std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t got = read(out.subspan(done));
    if (got == 0) break;
    done += got;
  }
  return done;
}

}  // namespace

ArchiveWriter::ArchiveWriter(const ArchiveHeader& header, WriteBytes sink) : sink_(std::move(sink)) {
  std::array<std::uint8_t, kHeaderBytes> bytes{};
  std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  bytes[7] = kVersion;
  base::store_little(&bytes[8], header.block);
  base::store_little(&bytes[12], header.model_crc);
  base::store_little(&bytes[16], header.probe_crc);
  base::store_little(&bytes[20], header.size);
  std::copy_n(header.cpu_level.begin(), std::min(header.cpu_level.size(), kLevelBytes), bytes.begin() + 28);
  bytes[36] = header.first;
  base::store_little(&bytes[40], base::crc32(std::span(bytes).first(40)));
  write(bytes);
}

void ArchiveWriter::write(std::span<const std::uint8_t> bytes) {
  crc_ = base::crc32(bytes, crc_);
  written_ += bytes.size();
  sink_(bytes);
}

void ArchiveWriter::put(const ArchiveBlock& block) {
  std::array<std::uint8_t, kBlockBytes> bytes;
  base::store_little(&bytes[0], block.length);
  base::store_little(&bytes[4], static_cast<std::uint32_t>(block.message.size()));
  base::store_little(&bytes[8], block.crc);
  bytes[12] = block.before;
  write(bytes);
  write(block.message);
}

void ArchiveWriter::finish(std::uint64_t size, std::uint32_t crc) {
  std::array<std::uint8_t, 4> end{};
  write(end);
  std::array<std::uint8_t, kTrailerBytes - 4> bytes;
  base::store_little(&bytes[0], size);
  base::store_little(&bytes[8], crc);
  write(bytes);
  base::store_little(end.data(), crc_);
  write(end);
}

void ArchiveReader::damaged(const std::string& what) const {
  throw base::Damaged(name_ + " " + what + "; it was changed or cut after it was written: fetch it anew");
}

ArchiveReader::ArchiveReader(ReadBytes read, std::string name) : read_(std::move(read)), name_(std::move(name)) {
  std::array<std::uint8_t, kHeaderBytes> bytes;
  const std::size_t got = fill(read_, bytes);
  const auto head = std::span<const std::uint8_t>(bytes).first(got);
  if (got == 0) throw base::Error(name_ + " is empty, not a file that dormouse compress wrote");
  const auto magic = std::span(kMagic).first(std::min(got, kMagic.size()));
  if (!std::equal(magic.begin(), magic.end(), head.begin(), [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; })) {
    const auto seen = format::recognise(head);
    const std::string what = seen.what.empty() ? "something unknown" : std::string(seen.what);
    throw base::Error(name_ + " is " + what + ", not a file that dormouse compress wrote");
  }
  if (got < kHeaderBytes) damaged("ends inside its header");
  if (bytes[7] != kVersion)
    throw base::Error(name_ + " is of version " + std::to_string(bytes[7]) + " and this dormouse reads version 1; use a newer one");
  if (base::load_little<std::uint32_t>(&bytes[40]) != base::crc32(head.first(40))) damaged("has a header whose checksum does not hold");
  header_.block = base::load_little<std::uint32_t>(&bytes[8]);
  header_.model_crc = base::load_little<std::uint32_t>(&bytes[12]);
  header_.probe_crc = base::load_little<std::uint32_t>(&bytes[16]);
  header_.size = base::load_little<std::uint64_t>(&bytes[20]);
  const std::string_view level(reinterpret_cast<const char*>(&bytes[28]), kLevelBytes);
  header_.cpu_level = level.substr(0, level.find('\0'));
  header_.first = bytes[36];
  if (header_.block == 0 || header_.block > kLargestBlock) damaged("asks for blocks of " + std::to_string(header_.block) + " bytes");
  const auto known = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const bool level_ok = !header_.cpu_level.empty() && std::all_of(header_.cpu_level.begin(), header_.cpu_level.end(), known) &&
                        level.find_first_not_of('\0', header_.cpu_level.size()) == std::string_view::npos;
  if (!level_ok || bytes[37] != 0 || bytes[38] != 0 || bytes[39] != 0 || (header_.size == 0 && header_.first != 0))
    damaged("has a header that no dormouse writes");
  crc_ = base::crc32(head);
  taken_ = kHeaderBytes;
  size_ = header_.size == 0 ? 0 : 1;
}

void ArchiveReader::take(std::span<std::uint8_t> out) {
  const std::size_t got = fill(read_, out);
  taken_ += got;
  crc_ = base::crc32(out.first(got), crc_);
  if (got < out.size()) damaged("is cut off after " + std::to_string(taken_) + " bytes");
}

bool ArchiveReader::next(ArchiveBlock& block) {
  std::array<std::uint8_t, kBlockBytes> bytes;
  take(std::span(bytes).first(4));
  block.length = base::load_little<std::uint32_t>(&bytes[0]);
  if (block.length == 0) {
    finish();
    return false;
  }
  take(std::span(bytes).subspan(4));
  const auto stored = base::load_little<std::uint32_t>(&bytes[4]);
  block.crc = base::load_little<std::uint32_t>(&bytes[8]);
  block.before = bytes[12];
  if (block.length > header_.block || last_ || stored > block.length || header_.size - size_ < block.length || size_ == 0)
    damaged("has in block " + std::to_string(blocks_) + " lengths that do not fit together");
  last_ = block.length < header_.block;
  size_ += block.length;
  ++blocks_;
  block.message.clear();
  constexpr std::uint32_t kPiece = 1U << 16;  // memory grows with what is really there
  for (std::uint32_t done = 0; done < stored;) {
    const std::uint32_t piece = std::min(kPiece, stored - done);
    block.message.resize(done + piece);
    take(std::span(block.message).subspan(done));
    done += piece;
  }
  return true;
}

void ArchiveReader::finish() {
  std::array<std::uint8_t, kTrailerBytes> bytes;
  take(std::span(bytes).first(kTrailerBytes - 4));
  const std::uint32_t crc = crc_;
  take(std::span(bytes).subspan(kTrailerBytes - 4));
  original_crc_ = base::load_little<std::uint32_t>(&bytes[8]);
  if (base::load_little<std::uint32_t>(&bytes[12]) != crc) damaged("does not have the checksum it was written with");
  if (base::load_little<std::uint64_t>(&bytes[0]) != size_ || (header_.size != kUnknownSize && header_.size != size_))
    damaged("says in two places how long the original was, and they differ");
  if (size_ == 0 && original_crc_ != 0) damaged("has a checksum that is not of an empty original");
  std::array<std::uint8_t, 1> more;
  if (fill(read_, more) != 0) damaged("goes on after its end");
}

}  // namespace dormouse::decode
