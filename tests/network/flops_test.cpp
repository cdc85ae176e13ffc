// The counted operations against the figures of an independent count, for three presets.
#include "network/dormouse/flops.h"

#include <gtest/gtest.h>

namespace dormouse::network {
namespace {

struct Count {
  const char* preset;
  double rows, products, recurrence;  // GFLOP of forward and backward over `rows` positions
};

TEST(Flops, OfAStepAreThoseOfTheDesign) {
  for (const Count& expected : {Count{"small", 8 * 512, 487, 21}, {"nano", 8 * 512, 328, 14}, {"tiny", 8 * 256, 8.5, 1.3}}) {
    double products = 0, recurrence = 0;
    for (const auto& stage : flops_per_position(preset(expected.preset)))
      (stage.stage == "recurrence" ? recurrence : products) += 3 * stage.forward * expected.rows / 1e9;
    EXPECT_NEAR(products, expected.products, 0.01 * expected.products) << expected.preset;
    EXPECT_NEAR(recurrence, expected.recurrence, 0.05 * expected.recurrence) << expected.preset;
  }
}

TEST(Flops, WhatIsOffCountsNothing) {
  ModelConfig config = preset("tiny");
  config.use_kda = config.use_engram = false;
  for (const auto& stage : flops_per_position(config)) {
    EXPECT_NE(stage.stage, "attention");
    EXPECT_NE(stage.stage, "recurrence");
    EXPECT_NE(stage.stage, "memory");
    EXPECT_GT(stage.forward, 0);
  }
}

}  // namespace
}  // namespace dormouse::network
