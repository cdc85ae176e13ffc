// Any file in the bits a model needs to predict it, and back, byte for byte: arithmetic coding over the step form (docs/formats/dmz.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "decode/archive.h"
#include "decode/lanes.h"
#include "network/dormouse/weights.h"

namespace dormouse::decode {

inline constexpr std::uint32_t kDefaultBlock = 1U << 14;

// What must be equal at both ends.
struct Identity {
  std::uint32_t model_crc = 0;  // network::weights_crc
  std::uint32_t probe_crc = 0;  // CRC-32 of the counts (u32, quantise) after each of 256 fixed bytes read from the start
  std::string cpu_level;        // ops::cpu_level(), to say which one would have worked
  bool operator==(const Identity&) const = default;
};

struct CompressOptions {
  std::uint32_t block = kDefaultBlock;     // bytes coded from one state, 1 .. kLargestBlock
  std::optional<std::uint64_t> size = {};  // of the original, where it is known
};

struct CompressStats {
  std::uint64_t original = 0, archive = 0;           // bytes
  std::uint64_t coded_bytes = 0, coded_message = 0;  // of the blocks that are coded: original and message, bytes
  std::uint64_t blocks = 0, raw_blocks = 0;
};

// Compression reads a block in pieces, decompression several blocks side by side; the archive depends on neither, nor on the thread count.
class Compressor {
 public:
  // The weights outlive the compressor. crc: network::weights_crc of them.
  Compressor(const network::Weights& weights, std::uint32_t crc);
  const Identity& identity() const { return identity_; }

  // base::Error when the original is not of the size given.
  CompressStats compress(const ReadBytes& original, const WriteBytes& archive, const CompressOptions& options = {});
  // Bytes are written when the checksum of their block holds; nothing before the identity does. The archive is whole and the original
  // complete only when this returns. base::Error when the archive is of another model or another arithmetic.
  CompressStats decompress(ArchiveReader& archive, const WriteBytes& original);

  std::function<void(std::uint64_t bytes)> progress;  // of the original, now and then

 private:
  struct Job;
  void encode(Job& job);
  void decode(std::vector<Job>& jobs);
  Lanes& lanes(std::size_t count);
  void refuse_other(const ArchiveReader& archive) const;
  const network::Weights& weights_;
  Identity identity_;
  std::optional<Lanes> lanes_;
  std::uint64_t done_ = 0;
};

}  // namespace dormouse::decode
