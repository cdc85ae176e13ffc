// The bytes as they are, and once more with lengths and checksums put right, so that what stands behind them is reached.
#include <cstring>
#include <string>

#include "base/hash.h"
#include "format/dmexp.h"
#include "network/dormouse/export.h"
#include "network/dormouse/weights.h"
#include "support.h"

namespace {

using dormouse::base::crc32;

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::string repaired(std::string file) {
  std::uint32_t length = 0;
  std::memcpy(&length, file.data() + 8, 4);
  if (length > file.size() - 24) return "";
  const std::uint64_t payload = file.size() - 24 - length;
  const std::uint32_t crc = crc32(bytes_of(file.substr(24 + length)));
  std::memcpy(file.data() + 12, &payload, 8);
  std::memcpy(file.data() + 20, &crc, 4);
  if (length >= 16 && file.compare(24 + length - 16, 7, "#crc32:") == 0) {
    char digits[12];
    std::snprintf(digits, sizeof digits, "%08x\n", crc32(bytes_of(file.substr(24, length - 16))));
    file.replace(24 + length - 9, 9, digits);
  }
  return file;
}

void read(std::span<const std::uint8_t> bytes) {
  const dormouse::fuzz::MemoryFile file(bytes);
  dormouse::fuzz::answered([&] { (void)dormouse::format::DmexpFile(file.path()).read(); });
  dormouse::fuzz::answered([&] {
    const auto model = dormouse::network::load_export(file.path());
    (void)dormouse::network::widened(model);
    (void)dormouse::network::read_weights(model);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read({data, size});
  if (size > 24 && std::memcmp(data, "DMEXPRT", 7) == 0) {
    const std::string fixed = repaired({reinterpret_cast<const char*>(data), size});
    if (!fixed.empty()) read(bytes_of(fixed));
  }
  return 0;
}
