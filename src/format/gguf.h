// GGUF version 3 files: typed metadata and tensors (layout: docs/gguf.md of ggml).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "config/toml.h"

namespace dormouse::format {

// ggml's numbers. tq2_0: blocks of 256 along the last dimension, 2-bit codes and one f16 scale each.
enum class GgufType : std::uint32_t { f32 = 0, f16 = 1, bf16 = 30, tq2_0 = 35 };
inline constexpr std::int64_t kTq2Block = 256;
inline constexpr std::uint64_t kTq2BlockBytes = 66;

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> dims;  // row-major; the file lists them in reverse
  GgufType type = GgufType::f32;
  std::vector<std::uint8_t> data;
};
// Whole numbers become u32 where they fit, else i64; numbers f64; lists arrays of u32.
using GgufMetadata = std::vector<std::pair<std::string, config::Value>>;

// Bytes of a row-major tensor of these dims; base::Error naming the tensor when the last is no whole number of blocks.
std::uint64_t gguf_bytes(const std::string& name, const std::vector<std::int64_t>& dims, GgufType type);
// One block: f16(scale) and 256 codes -1, 0, 1, appended to `out`.
void append_tq2_block(float scale, const std::int8_t* signs, std::vector<std::uint8_t>& out);

// Atomically. Adds general.alignment and dormouse.data_crc32, the CRC-32 of everything from the first tensor on. Its size.
std::uint64_t write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors);

// A strict reader: counts and lengths against the real file before any allocation, no duplicates, offsets as the writer must set them.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);
  struct Entry {
    std::string name;
    std::vector<std::int64_t> dims;  // row-major
    std::uint32_t type = 0;          // ggml's number
    std::string type_name;           // "BF16", or "type 12"
    std::uint64_t offset = 0;        // in the file
  };
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }  // values as text, long ones cut
  const std::vector<Entry>& entries() const { return entries_; }
  bool has_checksum() const { return has_checksum_; }  // verified on opening
  std::vector<float> read(const Entry& entry) const;   // f32, f16, bf16, tq2_0; base::Error otherwise

 private:
  std::filesystem::path path_;
  std::shared_ptr<const base::File> file_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<Entry> entries_;
  bool has_checksum_ = false;
};

}  // namespace dormouse::format
