#include "format/kind.h"

#include <algorithm>
#include <array>

namespace dormouse::format {

namespace {

struct Magic {
  std::string_view bytes;
  std::string_view sentence;
};

using namespace std::string_view_literals;

constexpr std::array kMagics{
    Magic{"DMEXPRT"sv, "is a dormouse export (.dmexp), not a checkpoint; give the checkpoint.safetensors of a run directory"sv},
    Magic{"DMNGRAM"sv, "is a dormouse n-gram table (.ngram), not a checkpoint; give the run directory it lies in"sv},
    Magic{"GGUF"sv, "is a GGUF model, which dormouse does not read; give a safetensors file"sv},
    Magic{"\x1f\x8b"sv, "is gzip data; unpack it first (gunzip)"sv},
    Magic{"\x28\xb5\x2f\xfd"sv, "is zstd data; unpack it first (unzstd)"sv},
    Magic{"\xfd"
          "7zXZ"sv,
          "is xz data; unpack it first (unxz)"sv},
    Magic{"BZh"sv, "is bzip2 data; unpack it first (bunzip2)"sv},
    Magic{"PK\x03\x04"sv, "is a zip archive (a PyTorch .pt is one); give a safetensors file"sv},
    Magic{"\x93NUMPY"sv, "is a NumPy array; give a safetensors file"sv},
    Magic{"\x7f"
          "ELF"sv,
          "is a program; give a safetensors file"sv},
};

bool is_text_byte(std::uint8_t byte) { return byte >= 0x20 ? byte != 0x7f : byte == '\n' || byte == '\r' || byte == '\t' || byte == '\f'; }

}  // namespace

std::string_view recognised(std::span<const std::uint8_t> head) {
  for (const Magic& magic : kMagics) {
    const bool same =
        head.size() >= magic.bytes.size() && std::equal(magic.bytes.begin(), magic.bytes.end(), head.begin(),
                                                        [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
    if (same) return magic.sentence;
  }
  if (!head.empty() && std::all_of(head.begin(), head.end(), is_text_byte))
    return "is a text file, not a model; give a run directory or a checkpoint.safetensors";
  return {};
}

}  // namespace dormouse::format
