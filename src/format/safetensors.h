// safetensors files: named tensors and string metadata (layout: the README of Hugging Face safetensors).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/tensor.h"

namespace dormouse::format {

struct NamedTensor {
  std::string name;
  tensor::Tensor value;  // f32, f64, bf16, u8, u32; contiguous
};

// Writes atomically (temp, fsync, rename, fsync of the directory), widest dtype first, then by name. Metadata gains "crc32":
// "name=8hex;..." of every tensor's bytes, and "crc32_header": the CRC of the header's own bytes with these 8 digits as '0'.
// previous: what stood under `path` is kept under this name (base::write_file_keeping).
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata, const std::filesystem::path& previous = {});

// A strict reader: sizes against the real file before any allocation, no holes, no overlaps, no duplicates, known dtypes only,
// CRCs verified when the metadata has them (both kinds or neither: one alone is damage). Every refusal is one line, a base::Damaged when
// the file was cut or changed, a base::Error when it is another kind of file, that says what the file is (text, gzip, GGUF, .dmexp,
// truncated ...) and what to do.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  struct Entry {
    std::string name;
    tensor::Dtype dtype;
    std::vector<std::int64_t> dims;
    std::uint64_t begin = 0, end = 0;  // bytes in the file

    std::string dims_text() const;  // "[8,256]", as tensor::Shape::text, of any rank
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  tensor::Tensor read(const Entry& entry) const;  // verifies the CRC
  bool has_checksums() const { return !crc_.empty(); }
  const Entry* find(const std::string& name) const;

 private:
  void take_checksums(std::string header);
  std::filesystem::path path_;
  std::shared_ptr<const base::File> file_;       // stays open: a checkpoint renamed over `path` meanwhile does not mix in
  std::vector<Entry> entries_;                   // in the order of their bytes
  std::map<std::string, std::string> metadata_;  // without the two CRC keys
  std::map<std::string, std::uint32_t> crc_;
};

}  // namespace dormouse::format
