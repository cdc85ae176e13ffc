// BPB is a code length: what compress writes is what eval says.
#include <gtest/gtest.h>

#include "../decode/support.h"
#include "decode/compress.h"
#include "evaluate/bpb.h"

namespace dormouse::evaluate {
namespace {

TEST(CodeLength, TheMessagesAreWithinATenthOfAPercentOfTheBpbOfTheSameWindows) {
  auto model = decode::testing::tiny_model();
  const auto text = decode::testing::liked_text(model, 40'000);
  const network::Weights weights = decode::testing::weights_of(model);
  decode::Compressor compressor(weights, network::weights_crc(model.parameters, model.config));
  for (const std::uint32_t block : {20'000U, 3'000U}) {
    std::size_t at = 0;
    const auto read = [&](std::span<std::uint8_t> out) {
      const std::size_t count = std::min(out.size(), text.size() - at);
      std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(at), count, out.begin());
      at += count;
      return count;
    };
    const auto stats = compressor.compress(read, [](std::span<const std::uint8_t>) {}, {.block = block});
    BpbOptions options;
    options.row = block;
    const auto bpb = bits_per_byte(model.config, model.parameters, text, options);
    ASSERT_EQ(stats.raw_blocks, 0U);
    ASSERT_EQ(stats.coded_bytes, static_cast<std::uint64_t>(bpb.scored));
    const double coded = 8 * static_cast<double>(stats.coded_message) / static_cast<double>(stats.coded_bytes);
    EXPECT_NEAR(coded / bpb.bpb, 1, 1e-3) << coded << " against " << bpb.bpb;
  }
}

}  // namespace
}  // namespace dormouse::evaluate
