// An archive as it is; the same bytes under a header and checksums that hold; and the bytes as an original, there and back.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "decode/compress.h"
#include "support.h"

namespace {

using namespace dormouse;

struct Coder {
  network::ModelConfig config = tiny();
  network::Parameters parameters = network::make_parameters(config, 1);
  network::Weights weights = network::read_weights(parameters, config);
  decode::Compressor compressor{weights, network::weights_crc(parameters, config)};
  static network::ModelConfig tiny() {
    network::ModelConfig c;
    c.d_model = 4;
    c.n_heads = 1;
    c.head_dim = 4;
    c.d_ffn = c.rank = c.engram_dim = 2;
    c.n_experts = c.max_iter = 1;
    c.engram_rows = 16;
    return c;
  }
};

decode::ReadBytes reader(std::span<const std::uint8_t> bytes) {
  return [bytes](std::span<std::uint8_t> out) mutable {
    const std::size_t count = std::min(out.size(), bytes.size());
    std::copy_n(bytes.begin(), count, out.begin());
    bytes = bytes.subspan(count);
    return count;
  };
}

std::vector<std::uint8_t> decompress(Coder& coder, std::span<const std::uint8_t> bytes) {
  std::vector<std::uint8_t> out;
  decode::ArchiveReader archive(reader(bytes), "archive");
  coder.compressor.decompress(archive, [&](std::span<const std::uint8_t> part) { out.insert(out.end(), part.begin(), part.end()); });
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Coder coder;
  const std::span<const std::uint8_t> bytes(data, size);
  fuzz::answered([&] { (void)decompress(coder, bytes); });

  std::vector<std::uint8_t> sealed(bytes.begin(), bytes.end());
  if (size >= 48) {
    const auto& identity = coder.compressor.identity();
    const auto store = [&](std::size_t at, std::uint32_t value) { std::memcpy(&sealed[at], &value, 4); };
    std::memcpy(sealed.data(), "DMPRESS\1", 8);
    store(8, 1U + sealed[8] % 64U);  // short blocks: an input is to take no longer than its length
    store(12, identity.model_crc);
    store(16, identity.probe_crc);
    std::fill_n(sealed.begin() + 28, 8, std::uint8_t{0});
    std::copy(identity.cpu_level.begin(), identity.cpu_level.end(), sealed.begin() + 28);
    std::fill_n(sealed.begin() + 37, 3, std::uint8_t{0});
    store(40, base::crc32(std::span(sealed).first(40)));
    store(size - 4, base::crc32(std::span(sealed).first(size - 4)));
    fuzz::answered([&] { (void)decompress(coder, sealed); });
  }

  std::vector<std::uint8_t> archive;
  coder.compressor.compress(
      reader(bytes), [&](std::span<const std::uint8_t> part) { archive.insert(archive.end(), part.begin(), part.end()); }, {.block = 50});
  if (!std::ranges::equal(decompress(coder, archive), bytes)) __builtin_trap();
  return 0;
}
