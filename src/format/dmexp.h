// .dmexp files, the inference export (docs/formats/dmexp.md): read, not mapped; values kept as narrow as they are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "format/dmexp_header.h"
#include "format/packed.h"
#include "tensor/tensor.h"

namespace dormouse::format {

struct DmexpTensor {
  std::string name;
  tensor::Tensor value;  // f32, contiguous
  Storage storage = Storage::f32;
  Scales axis = Scales::none;
};

struct DmexpInfo {
  std::string dtype;  // DmexpHeader::dtype; decides the version
  std::string source;
  std::int64_t step = 0;
  std::optional<double> bpb;
  std::optional<std::int64_t> window;
  std::string config;
};

// A narrowed model before it is written.
struct DmexpImage {
  DmexpHeader header;
  std::vector<std::uint8_t> payload;
  std::int64_t inexact = 0;  // PackStats::inexact over all tensors
};
// base::Error naming tensor and value: one that is not finite, or becomes so.
DmexpImage narrow(const DmexpInfo& info, const std::vector<DmexpTensor>& tensors);
// Atomically; then reads the file back and compares it byte for byte. Its size.
std::uint64_t write_dmexp(const std::filesystem::path& path, const DmexpImage& image);

// A file whose lengths, checksums and header are in order; its values are not in memory. Every refusal is one line: base::Damaged when the
// file was cut or changed, base::Error when it is of another kind (which it names) or says what no writer says.
class DmexpFile {
 public:
  explicit DmexpFile(const std::filesystem::path& path);
  const DmexpHeader& header() const { return header_; }
  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }

  struct Contents {
    std::vector<Packed> tensors;         // in the order of the header; spans into block
    std::shared_ptr<std::byte> payload;  // one 64-byte-aligned block, as in the file
  };
  // All values, checked; the memory it takes is that of the payload.
  Contents read() const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const base::File> file_;  // stays open: a file renamed over `path` meanwhile does not mix in
  std::uint64_t size_ = 0, payload_at_ = 0;
  std::uint32_t payload_crc_ = 0;
  DmexpHeader header_;
};

}  // namespace dormouse::format
