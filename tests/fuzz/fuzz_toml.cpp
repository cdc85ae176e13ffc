// Config files and headers: every text is a document or a refusal, and a model config or a refusal.
#include "config/toml.h"
#include "network/dormouse/parameters.h"
#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  dormouse::fuzz::answered([&] { (void)dormouse::config::parse_document(text, "x"); });
  dormouse::fuzz::answered([&] {
    for (const auto& [name, table] : dormouse::config::parse_toml(text, "x")) {
      dormouse::network::ModelConfig config;
      dormouse::config::read_saved_table(config, table, "x");
      dormouse::network::validate(config);
      (void)dormouse::network::declare_shapes(config);
    }
  });
  return 0;
}
