// What a file is, by its first bytes: for readers that take more than one kind, and for the message that refuses one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace dormouse::format {

enum class Kind : std::uint8_t { unknown, dmexp, safetensors, gguf, dmz, other };

struct Recognised {
  Kind kind = Kind::unknown;
  std::string_view what;     // "gzip data"; "" when unknown
  std::string_view way_out;  // "unpack it first (gunzip)", or "": the reader knows better
};
// `head`: the first bytes (64 are enough). An empty head is unknown.
Recognised recognise(std::span<const std::uint8_t> head);
// The same of a file.
Recognised recognise_file(const std::filesystem::path& path);

// base::Error when the path is a directory, a FIFO or another thing that is no regular file. wanted: "an export"; advice: "give ...".
void require_regular(const std::filesystem::path& path, std::string_view wanted, std::string_view advice);

}  // namespace dormouse::format
