// The TOML header of a .dmexp file (docs/formats/dmexp.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/packed.h"

namespace dormouse::format {

inline constexpr std::uint64_t kDmexpFixed = 24;  // bytes before the header
inline constexpr std::uint64_t kDmexpLargestHeader = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kDmexpAlignment = 64;

struct DmexpEntry {
  std::string name;
  PackedShape shape;
  std::uint64_t codes_at = 0, scales_at = 0;  // bytes from the start of the payload
};

struct DmexpHeader {
  int version = 1;
  std::string dtype;   // "f32", "f16", "bf16"; version 2: "int8", "ternary"
  std::string source;  // "checkpoint.safetensors@step660"
  std::int64_t step = 0, num_params = 0, flushed = 0;
  double max_abs = 0, min_nonzero_abs = 0;
  std::optional<double> bpb;           // of the source on held-out text
  std::optional<std::int64_t> window;  // bytes of that text
  std::string config;                  // TOML
  std::vector<DmexpEntry> tensors;     // in the order of the payload
  std::uint64_t payload_bytes = 0;
  bool has_checksum = true;  // false: a version 1 of another program
};

// Sets codes_at, scales_at, payload_bytes and num_params from the shapes. False: beyond 2^62 bytes.
bool lay_out(DmexpHeader& header);

// The whole header, its checksum and padding included.
std::string write_dmexp_header(const DmexpHeader& header);

// `where` names the file in errors. base::Damaged: not what a writer wrote (checksum, text that is no TOML); base::Error: keys, types or
// values that the format does not know. What it says of the tensors is laid out, not compared with a config or a file.
DmexpHeader parse_dmexp_header(std::string_view text, int version, std::string_view where);

}  // namespace dormouse::format
