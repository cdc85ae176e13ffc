// The JSON header of a safetensors file: parsed without recursion, anything but its one shape refused at the first wrong token.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dormouse::format {

struct HeaderEntry {
  std::string name;
  std::string dtype;               // as written: "F32"
  std::vector<std::int64_t> dims;  // at most 4
  std::uint64_t begin = 0, end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;  // in the order of the text
  std::map<std::string, std::string> metadata;
  std::string problem;  // empty, or what is wrong with the text (a phrase that follows "its header ")
};

// Every name once, every entry with exactly dtype, shape, data_offsets, metadata of strings only. Sizes are not judged here.
Header parse_header(std::string_view text);

}  // namespace dormouse::format
