// The bytes of a .dmz file (docs/formats/dmz.md): header, blocks, trailer; which model reads them is not known here.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace dormouse::decode {

// Fills as much of `out` as there is; fewer bytes than asked for: the end.
using ReadBytes = std::function<std::size_t(std::span<std::uint8_t> out)>;
using WriteBytes = std::function<void(std::span<const std::uint8_t> bytes)>;

inline constexpr std::uint64_t kUnknownSize = ~std::uint64_t{0};
inline constexpr std::uint32_t kLargestBlock = 1U << 20;

struct ArchiveHeader {
  std::uint32_t block = 0;      // bytes of every block but the last, 1 .. kLargestBlock
  std::uint32_t model_crc = 0;  // Identity
  std::uint32_t probe_crc = 0;  // Identity
  std::uint64_t size = 0;       // of the original, kUnknownSize when it came from a stream
  std::string cpu_level;        // ops::cpu_level() of the writer
  std::uint8_t first = 0;       // the first byte of the original, which no model could predict; 0 when it is empty
};

struct ArchiveBlock {
  std::uint32_t length = 0;           // bytes of the original
  std::uint32_t crc = 0;              // of those
  std::uint8_t before = 0;            // the byte of the original before them
  std::vector<std::uint8_t> message;  // as long as `length`: the bytes themselves; shorter: coded
  bool raw() const { return message.size() == length; }
};

class ArchiveWriter {
 public:
  ArchiveWriter(const ArchiveHeader& header, WriteBytes sink);
  void put(const ArchiveBlock& block);
  void finish(std::uint64_t size, std::uint32_t crc);  // of the original
  std::uint64_t written() const { return written_; }

 private:
  void write(std::span<const std::uint8_t> bytes);
  WriteBytes sink_;
  std::uint32_t crc_ = 0;
  std::uint64_t written_ = 0;
};

// Every refusal is one line that begins with `name`: base::Damaged when the file was cut or changed, base::Error when it is of another
// kind. Memory: one block.
class ArchiveReader {
 public:
  ArchiveReader(ReadBytes read, std::string name);
  const ArchiveHeader& header() const { return header_; }
  const std::string& name() const { return name_; }
  // The next block; false at the end, when lengths and checksum of the archive hold and nothing follows.
  bool next(ArchiveBlock& block);
  // After the end.
  std::uint32_t original_crc() const { return original_crc_; }
  std::uint64_t original_size() const { return size_; }
  std::uint64_t archive_size() const { return taken_; }

 private:
  void take(std::span<std::uint8_t> out);
  void finish();
  [[noreturn]] void damaged(const std::string& what) const;
  ReadBytes read_;
  std::string name_;
  ArchiveHeader header_;
  std::uint32_t crc_ = 0, original_crc_ = 0;
  std::uint64_t taken_ = 0, size_ = 0, blocks_ = 0;
  bool last_ = false;  // a block shorter than the others was read
};

}  // namespace dormouse::decode
