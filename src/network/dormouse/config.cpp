#include "network/dormouse/config.h"

#include <array>
#include <bit>

#include "base/error.h"
#include "base/units.h"

namespace dormouse::network {

namespace {

constexpr std::array<std::string_view, 4> kPresets = {"tiny", "nano", "small", "base"};

}  // namespace

std::vector<std::string_view> preset_names() { return {kPresets.begin(), kPresets.end()}; }

ModelConfig preset(std::string_view name) {
  ModelConfig c;  // small
  if (name == "small") return c;
  if (name == "tiny") {
    c.d_model = 128;
    c.n_heads = 2;
    c.d_ffn = 512;
    c.rank = 32;
    c.n_experts = 2;
    c.max_iter = 3;
    c.max_seq_len = 256;
    c.engram_rows = 4096;
    c.expert_init = "silent";
    c.engram_gate = "smooth";
    return c;
  }
  if (name == "nano") {
    c.d_model = 512;
    c.n_heads = 8;
    c.rank = 96;
    c.engram_orders = {3, 4, 5};
    return c;
  }
  if (name == "base") {
    c.d_model = 1024;
    c.n_heads = 16;
    c.d_ffn = 2816;
    c.max_iter = 8;
    c.max_seq_len = 1024;
    return c;
  }
  const std::string near = base::nearest(name, kPresets.data(), kPresets.size());
  throw base::UsageError("unknown preset \"" + base::escape(name) + "\"" + (near.empty() ? "" : "; did you mean " + near + "?") +
                         " (presets: tiny, nano, small, base)");
}

void validate(ModelConfig& c) {
  const auto refuse = [](const std::string& message) { throw base::Error("model config: " + message); };
  if (c.equations != kEquations) {
    refuse("equations = " + std::to_string(c.equations) + ", but this program computes equations = " + std::to_string(kEquations) +
           "; use the version of dormouse that wrote it");
  }
  if (c.d_model % c.n_heads != 0) {
    refuse("n_heads = " + std::to_string(c.n_heads) + " does not divide d_model = " + std::to_string(c.d_model) + "; choose a divisor");
  }
  if (c.engram_orders.size() != 3) {
    refuse("engram_orders has " + std::to_string(c.engram_orders.size()) + " entries; exactly three are needed, for example 2,3,4");
  }
  for (const auto order : c.engram_orders) {
    if (order < 1 || order > 32) refuse("engram_orders holds " + std::to_string(order) + "; each order is 1 to 32 bytes");
  }
  c.engram_rows = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(c.engram_rows)));
}

}  // namespace dormouse::network
