#include "format/kind.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"

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

bool is_control(char c) {
  const auto byte = static_cast<std::uint8_t>(c);
  return byte == 0x7f || (byte < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f');
}

// UTF-8 without control bytes; the last character may be cut.
bool is_text(std::string_view text) {
  if (text.empty() || std::any_of(text.begin(), text.end(), is_control)) return false;
  std::size_t at = 0;
  while (const std::size_t length = at < text.size() ? base::utf8_length(text, at) : 0) at += length;
  return at > 0 && text.size() - at < 4;
}

}  // namespace

std::string_view recognised(std::span<const std::uint8_t> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  for (const Magic& magic : kMagics)
    if (text.starts_with(magic.bytes)) return magic.sentence;
  if (is_text(text)) return "is a text file, not a model; give a run directory or a checkpoint.safetensors";
  return {};
}

}  // namespace dormouse::format
