#include "evaluate/compressors.h"

#include <zlib.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"

#ifdef DORMOUSE_BZIP2
#include <bzlib.h>
#endif
#ifdef DORMOUSE_LZMA
#include <lzma.h>
#endif
#ifdef DORMOUSE_ZSTD
#include <zstd.h>
#endif
#ifdef DORMOUSE_BROTLI
#include <brotli/encode.h>
#endif

namespace dormouse::evaluate {
namespace {

using Bytes = std::span<const std::uint8_t>;

[[noreturn]] void fail(std::string_view name, std::size_t size) {
  throw base::Error(std::string(name) + " could not compress " + std::to_string(size) + " bytes (out of memory?)");
}

// The one-shot interfaces of zlib and bzip2 count in 32 bits.
void refuse_above_2gib(std::string_view name, Bytes text) {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) fail(name, text.size());
}

std::uint64_t gzip_size(Bytes text) {
  refuse_above_2gib("gzip", text);
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK) fail("gzip", text.size());
  std::vector<std::uint8_t> out(1 << 16);
  stream.next_in = const_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = out.data();
    stream.avail_out = static_cast<uInt>(out.size());
    status = deflate(&stream, Z_FINISH);
  }
  const std::uint64_t size = stream.total_out;
  deflateEnd(&stream);
  if (status != Z_STREAM_END) fail("gzip", text.size());
  return size;
}

#ifdef DORMOUSE_BZIP2
std::uint64_t bzip2_size(Bytes text) {
  refuse_above_2gib("bzip2", text);
  std::vector<char> out(text.size() + text.size() / 100 + 600);  // the bound of bzip2's manual
  auto size = static_cast<unsigned>(out.size());
  auto* source = const_cast<char*>(reinterpret_cast<const char*>(text.data()));
  if (BZ2_bzBuffToBuffCompress(out.data(), &size, source, static_cast<unsigned>(text.size()), 9, 0, 0) != BZ_OK) fail("bzip2", text.size());
  return size;
}
#endif

#ifdef DORMOUSE_LZMA
std::uint64_t xz_size(Bytes text) {
  std::vector<std::uint8_t> out(lzma_stream_buffer_bound(text.size()));
  std::size_t size = 0;
  if (lzma_easy_buffer_encode(9 | LZMA_PRESET_EXTREME, LZMA_CHECK_CRC64, nullptr, text.data(), text.size(), out.data(), &size,
                              out.size()) != LZMA_OK) {
    fail("xz", text.size());
  }
  return size;
}
#endif

#ifdef DORMOUSE_ZSTD
std::uint64_t zstd_size(Bytes text) {
  std::vector<std::uint8_t> out(ZSTD_compressBound(text.size()));
  ZSTD_CCtx* context = ZSTD_createCCtx();
  if (context == nullptr) fail("zstd", text.size());
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, 19);
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 27);
  ZSTD_CCtx_setParameter(context, ZSTD_c_enableLongDistanceMatching, 1);
  const std::size_t size = ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
  ZSTD_freeCCtx(context);
  if (ZSTD_isError(size)) fail("zstd", text.size());
  return size;
}
#endif

#ifdef DORMOUSE_BROTLI
std::uint64_t brotli_size(Bytes text) {
  std::vector<std::uint8_t> out(BrotliEncoderMaxCompressedSize(text.size()) + 64);
  std::size_t size = out.size();
  if (BrotliEncoderCompress(BROTLI_MAX_QUALITY, BROTLI_MAX_WINDOW_BITS, BROTLI_MODE_GENERIC, text.size(), text.data(), &size, out.data()) !=
      BROTLI_TRUE) {
    fail("brotli", text.size());
  }
  return size;
}
#endif

constexpr std::array<Compressor, 5> kCompressors = {{
    {"gzip", false, gzip_size},
#ifdef DORMOUSE_BZIP2
    {"bzip2", false, bzip2_size},
#else
    {"bzip2", false, nullptr},
#endif
#ifdef DORMOUSE_LZMA
    {"xz", false, xz_size},
#else
    {"xz", false, nullptr},
#endif
#ifdef DORMOUSE_ZSTD
    {"zstd", true, zstd_size},
#else
    {"zstd", true, nullptr},
#endif
#ifdef DORMOUSE_BROTLI
    {"brotli", true, brotli_size},
#else
    {"brotli", true, nullptr},
#endif
}};

}  // namespace

std::span<const Compressor> compressors() { return kCompressors; }

}  // namespace dormouse::evaluate
