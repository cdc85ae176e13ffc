#include "decode/lanes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "../network/support.h"
#include "base/error.h"
#include "base/threads.h"
#include "folder.h"
#include "format/dmexp.h"
#include "network/dormouse/export.h"
#include "network/dormouse/weights.h"
#include "sanitizer.h"

namespace dormouse::decode {
namespace {

using network::testing::keys_of;
using network::testing::random_bytes;
using network::testing::small_config;
using Bytes = std::vector<std::uint8_t>;
using Logits = std::vector<float>;

constexpr std::array<const char*, 4> kTypes = {"f32", "bf16", "int8", "ternary"};

class LanesTest : public tests::FolderTest {
 protected:
  void SetUp() override {
    parameters_ = network::make_parameters(config_, 3);
    network::testing::perturb(parameters_, config_, 4);
  }
  // As an export of the type holds them; ternary is forced.
  network::Weights weights(const std::string& dtype) {
    const auto path = folder_ / (dtype + ".dmexp");
    format::write_dmexp(
        path, network::export_image(parameters_, config_, {.source = "x.safetensors", .step = 1, .bpb = {}, .window = {}}, dtype, true));
    return network::read_weights(network::load_export(path));
  }
  network::Weights weights() { return network::read_weights(parameters_, config_); }

  network::ModelConfig config_ = small_config();
  network::Parameters parameters_;
};

Logits copy(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

// The logits after every byte, [bytes,256], one byte after the other.
Logits one_by_one(const network::Weights& weights, const Bytes& text) {
  Lanes lanes(weights, 1);
  Logits all;
  for (const std::uint8_t byte : text) {
    lanes.step({&byte, 1});
    all.insert(all.end(), lanes.logits(0).begin(), lanes.logits(0).end());
  }
  return all;
}

Logits row(const Logits& all, std::size_t at) {
  return {all.begin() + static_cast<std::ptrdiff_t>(at * 256), all.begin() + static_cast<std::ptrdiff_t>((at + 1) * 256)};
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

TEST_F(LanesTest, ATextReadInAnyCutHasTheBitsOfItsBytesOneByOne) {
  const Bytes text = random_bytes(300, 5);
  for (const std::string dtype : kTypes) {
    const auto w = weights(dtype);
    const Logits want = one_by_one(w, text);
    for (const auto& cut :
         std::vector<std::vector<std::size_t>>{{300}, {1, 299}, {16, 17, 33, 127, 107}, {128, 128, 44}, {129, 1, 1, 169}, {299, 1}}) {
      Lanes lanes(w, 2);
      std::size_t at = 0;
      for (const std::size_t piece : cut) {
        lanes.read(1, std::span(text).subspan(at, piece));
        at += piece;
        ASSERT_EQ(copy(lanes.logits(1)), row(want, at - 1)) << dtype << ", byte " << at << " of a cut that starts with " << cut[0];
      }
      EXPECT_EQ(lanes.position(1), 300);
      EXPECT_EQ(lanes.position(0), 0);
    }
  }
}

TEST_F(LanesTest, EveryByteOfAPromptHasItsLogits) {
  const Bytes text = random_bytes(300, 5);
  for (const std::string dtype : kTypes) {
    const auto w = weights(dtype);
    Lanes lanes(w, 1);
    Logits all;
    lanes.read(0, text, [&](std::span<const float> piece) { all.insert(all.end(), piece.begin(), piece.end()); });
    EXPECT_EQ(all, one_by_one(w, text)) << dtype;
    EXPECT_EQ(copy(lanes.logits(0)), row(all, 299)) << dtype;
  }
}

TEST_F(LanesTest, AnEmptyTextChangesNothing) {
  const auto w = weights();
  Lanes lanes(w, 1);
  lanes.read(0, random_bytes(9, 1));
  const Logits before = copy(lanes.logits(0));
  lanes.read(0, {});
  lanes.read(0, {}, [](std::span<const float>) { FAIL(); });
  lanes.step({});
  EXPECT_EQ(copy(lanes.logits(0)), before);
  EXPECT_EQ(lanes.position(0), 9);
}

TEST_F(LanesTest, EachOfFiveLanesSaysWhatItSaysAlone) {
  config_.d_model = 128;  // wide enough for products on several threads
  config_.head_dim = 64;
  config_.d_ffn = 256;
  config_.rank = 32;
  parameters_ = network::make_parameters(config_, 3);
  for (const std::string dtype : kTypes) {
    const auto w = weights(dtype);
    for (const int threads : {1, 2, 3}) {
      base::set_threads(threads);
      Lanes lanes(w, 5);
      std::vector<Bytes> texts;
      for (std::size_t i = 0; i < 5; ++i) texts.push_back(random_bytes(60, 10 + i));
      for (std::size_t at = 0; at < 60; ++at) {
        Bytes column;
        for (const Bytes& text : texts) column.push_back(text[at]);
        lanes.step(column);
      }
      base::set_threads(1);
      for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(copy(lanes.logits(i)), row(one_by_one(w, texts[i]), 59)) << dtype << " lane " << i;
    }
  }
}

TEST_F(LanesTest, LanesBeyondTheBytesStandStill) {
  const auto w = weights();
  const Bytes text = random_bytes(20, 6);
  Lanes lanes(w, 3);
  for (std::size_t at = 0; at < 20; ++at) lanes.step(Bytes(at % 2 == 0 ? 3 : 1, text[at]));
  Bytes even;
  for (std::size_t at = 0; at < 20; at += 2) even.push_back(text[at]);
  EXPECT_EQ(copy(lanes.logits(0)), row(one_by_one(w, text), 19));
  for (const std::size_t lane : {1, 2}) {
    EXPECT_EQ(copy(lanes.logits(lane)), row(one_by_one(w, even), 9));
    EXPECT_EQ(lanes.position(lane), 10);
  }
}

TEST_F(LanesTest, ALaneStartedAgainForgetsItsTextAndTheOthersKeepTheirs) {
  const Bytes foreign = random_bytes(150, 7), kept = random_bytes(80, 8), text = random_bytes(50, 9);
  for (const std::string dtype : kTypes) {
    const auto w = weights(dtype);
    Lanes lanes(w, 3);
    lanes.read(0, std::span(kept).first(40));
    lanes.read(1, foreign);
    lanes.read(2, std::span(kept).first(7));
    lanes.restart(1);
    EXPECT_EQ(lanes.position(1), 0);
    lanes.read(1, text);
    lanes.read(0, std::span(kept).subspan(40));
    lanes.read(2, std::span(kept).subspan(7));
    EXPECT_EQ(copy(lanes.logits(1)), row(one_by_one(w, text), 49)) << dtype;
    const Logits alone = row(one_by_one(w, kept), 79);
    EXPECT_EQ(copy(lanes.logits(0)), alone) << dtype;
    EXPECT_EQ(copy(lanes.logits(2)), alone) << dtype;
    lanes.restart();
    for (std::size_t lane = 0; lane < 3; ++lane) lanes.read(lane, text);
    for (std::size_t lane = 0; lane < 3; ++lane) EXPECT_EQ(copy(lanes.logits(lane)), row(one_by_one(w, text), 49)) << dtype;
  }
}

TEST_F(LanesTest, TheStateRemembersMoreThanTheLastBytes) {
  const auto w = weights();
  Bytes a = random_bytes(60, 6), b = a;
  b[10] ^= 1;
  Lanes lanes(w, 2);
  lanes.read(0, a);
  lanes.read(1, b);
  EXPECT_GT(largest_difference(lanes.logits(0), lanes.logits(1)), 1e-6);
}

TEST_F(LanesTest, EveryDepthIsThatOfTheLoopAndOthersAreUsageErrors) {
  const auto w = weights();
  const Bytes text = random_bytes(100, 5);
  const auto keys = keys_of(config_, text, 1);
  for (std::int64_t depth = 0; depth <= config_.max_iter; ++depth) {
    autograd::Tape tape(false);
    const network::LoopInput input{.batch = 1, .time = 100, .bytes = text, .keys = keys, .targets = {}};
    const auto out = network::loop(tape, config_, parameters_, input, {.depth = depth, .want_logits = true}).logits;
    Lanes lanes(w, 1, depth);
    lanes.read(0, text);
    EXPECT_LT(largest_difference(lanes.logits(0), {out.data<float>() + 99 * 256, 256}), 1e-4) << depth;
  }
  EXPECT_THROW(Lanes(w, 1, config_.max_iter + 1), base::UsageError);
  EXPECT_THROW(Lanes(w, 1, -1), base::UsageError);
}

TEST_F(LanesTest, AModelWithoutAnArmIsReadToo) {
  for (const bool kda : {false, true}) {
    config_.use_kda = kda;
    config_.use_engram = false;
    parameters_ = network::make_parameters(config_, 3);
    const auto w = weights("int8");
    const Bytes text = random_bytes(200, 5);
    Lanes lanes(w, 2);
    lanes.read(1, text);
    EXPECT_EQ(copy(lanes.logits(1)), row(one_by_one(w, text), 199));
  }
}

TEST_F(LanesTest, TheStepFormIsTheLoopOver2000Bytes) {
  config_ = network::preset("tiny");
  config_.expert_init = "unit";  // experts that write from the start
  parameters_ = network::make_parameters(config_, 2);
  const auto w = weights();
  const Bytes text = random_bytes(2000, 12);
  const auto keys = keys_of(config_, text, 1);
  autograd::Tape tape(false);
  const network::LoopInput input{.batch = 1, .time = 2000, .bytes = text, .keys = keys, .targets = {}};
  const auto want = network::loop(tape, config_, parameters_, input, {.want_logits = true}).logits;
  Lanes lanes(w, 1);
  Logits all;
  lanes.read(0, text, [&](std::span<const float> piece) { all.insert(all.end(), piece.begin(), piece.end()); });
  EXPECT_LT(largest_difference(all, {want.data<float>(), all.size()}), 1e-4);
}

TEST_F(LanesTest, AHundredThousandBytesTakeNoMoreMemoryAndStayFinite) {
  if (tests::kAddressSanitizer) GTEST_SKIP() << "AddressSanitizer keeps freed memory";
  config_ = network::preset("tiny");
  parameters_ = network::make_parameters(config_, 2);
  network::testing::perturb(parameters_, config_, 3, 0.02);
  const auto w = weights("bf16");
  Lanes lanes(w, 1);
  const Bytes text = random_bytes(100'000, 13);
  lanes.read(0, std::span(text).first(2000));
  const std::uint64_t before = base::private_memory();
  lanes.read(0, std::span(text).subspan(2000));
  EXPECT_LT(base::private_memory(), before + (1U << 20));
  EXPECT_EQ(lanes.position(0), 100'000);
  for (const float x : lanes.logits(0)) ASSERT_TRUE(std::isfinite(x));
  lanes.step(std::span(text).first(1));
  for (const float x : lanes.logits(0)) ASSERT_TRUE(std::isfinite(x));
}

}  // namespace
}  // namespace dormouse::decode
