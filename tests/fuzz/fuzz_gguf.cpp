#include "format/gguf.h"
#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const dormouse::fuzz::MemoryFile file({data, size});
  dormouse::fuzz::answered([&] {
    const dormouse::format::GgufFile model(file.path());
    for (const auto& entry : model.entries()) dormouse::fuzz::answered([&] { (void)model.read(entry); });
  });
  return 0;
}
