#include "format/safetensors.h"
#include "network/dormouse/model_file.h"
#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const dormouse::fuzz::MemoryFile file({data, size});
  dormouse::fuzz::answered([&] {
    const dormouse::format::SafetensorsFile tensors(file.path());
    for (const auto& entry : tensors.entries()) (void)tensors.read(entry);
  });
  dormouse::fuzz::answered([&] { (void)dormouse::network::load_model(file.path()); });
  return 0;
}
