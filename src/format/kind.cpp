#include "format/kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

namespace dormouse::format {

namespace {

constexpr std::size_t kHeadBytes = 64;
constexpr std::uint64_t kLargestJson = 100'000'000;  // of a safetensors header

struct Magic {
  std::string_view bytes;
  Recognised meaning;
};

using namespace std::string_view_literals;

constexpr std::array kMagics{
    Magic{"DMEXPRT"sv, {Kind::dmexp, "a dormouse export (.dmexp)", ""}},
    Magic{"GGUF"sv, {Kind::gguf, "a GGUF model", ""}},
    Magic{"DMNGRAM"sv, {Kind::other, "a dormouse n-gram table (.ngram)", "give the run directory it lies in"}},
    Magic{"DMPRESS"sv, {Kind::dmz, "a compressed file (.dmz)", "dormouse decompress gives back what is in it"}},
    Magic{"DMCK"sv,
          {Kind::other, "a training checkpoint of the first dormouse, in Rust", "its layout is that of another program; train anew"}},
    Magic{"2NGM"sv, {Kind::other, "an n-gram table of the first dormouse, in Rust", "its layout is that of another program; train anew"}},
    Magic{"NRUB"sv, {Kind::other, "a burnpack model", "dormouse reads safetensors: convert it"}},
    Magic{"\x1f\x8b"sv, {Kind::other, "gzip data", "unpack it first (gunzip)"}},
    Magic{"\x28\xb5\x2f\xfd"sv, {Kind::other, "zstd data", "unpack it first (unzstd)"}},
    Magic{"\xfd"
          "7zXZ"sv,
          {Kind::other, "xz data", "unpack it first (unxz)"}},
    Magic{"BZh"sv, {Kind::other, "bzip2 data", "unpack it first (bunzip2)"}},
    Magic{"\x04\x22\x4d\x18"sv, {Kind::other, "lz4 data", "unpack it first (unlz4)"}},
    Magic{"7z\xbc\xaf\x27\x1c"sv, {Kind::other, "a 7z archive", "unpack it first"}},
    Magic{"PK\x03\x04"sv, {Kind::other, "a zip archive (a PyTorch .pt is one)", "convert what is in it to safetensors"}},
    Magic{"\x93NUMPY"sv, {Kind::other, "a NumPy array", ""}},
    Magic{"\x89HDF\r\n\x1a\n"sv, {Kind::other, "an HDF5 file", "convert what is in it to safetensors"}},
    Magic{"\x80\x02"sv, {Kind::other, "a Python pickle", "convert what is in it to safetensors"}},
    Magic{"\x7f"
          "ELF"sv,
          {Kind::other, "a program", ""}},
    Magic{"%PDF"sv, {Kind::other, "a PDF document", ""}},
    Magic{"\x89PNG"sv, {Kind::other, "a PNG image", ""}},
    Magic{"\xff\xd8\xff"sv, {Kind::other, "a JPEG image", ""}},
    Magic{"SQLite format 3"sv, {Kind::other, "an SQLite database", ""}},
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

// A small length, then JSON.
bool is_safetensors(std::string_view text) {
  if (text.size() < 9) return false;
  return base::load_little<std::uint64_t>(base::bytes_of(text).data()) <= kLargestJson &&
         std::string_view("{ \t\r\n").find(text[8]) != std::string_view::npos;
}

}  // namespace

Recognised recognise(std::span<const std::uint8_t> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  for (const Magic& magic : kMagics)
    if (text.starts_with(magic.bytes)) return magic.meaning;
  if (is_text(text)) return {Kind::other, "a text file", ""};
  if (is_safetensors(text)) return {Kind::safetensors, "a safetensors file", ""};
  return {};
}

Recognised recognise_file(const std::filesystem::path& path) { return recognise(base::read_start(path, kHeadBytes)); }

void require_regular(const std::filesystem::path& path, std::string_view wanted, std::string_view advice) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  const auto refuse = [&](std::string_view what, std::string_view way_out) {
    throw base::Error(fmt::format("{} is {}, not {}; {}", base::escape(path.string(), 1024), what, wanted, way_out));
  };
  if (std::filesystem::is_directory(status)) refuse("a directory", advice);
  if (std::filesystem::is_fifo(status)) refuse("a named pipe (FIFO)", "write its content to a file first and give that");
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw base::Error(fmt::format("{} is not a regular file; {}", base::escape(path.string(), 1024), advice));
}

}  // namespace dormouse::format
