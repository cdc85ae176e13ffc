// Shared by the tests of compression: a random model, and text it likes, so that its blocks are coded and not stored raw.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "../network/support.h"
#include "decode/lanes.h"
#include "network/dormouse/model_file.h"
#include "network/dormouse/weights.h"

namespace dormouse::decode::testing {

inline network::Model tiny_model(std::uint64_t seed = 3, std::int64_t width = 16) {
  network::Model model;
  model.config = network::testing::small_config();
  model.config.d_model = width;
  model.config.head_dim = width / 2;
  model.config.max_iter = 2;
  model.parameters = network::make_parameters(model.config, seed);
  network::testing::perturb(model.parameters, model.config, seed + 1, 0.3);
  model.path = "model.dmexp";
  return model;
}

inline network::Weights weights_of(network::Model& model) {
  network::Weights weights = network::read_weights(model.parameters, model.config);
  weights.path = model.path;
  return weights;
}

// Drawn from the model at temperature 1/2.
inline std::vector<std::uint8_t> liked_text(network::Model& model, std::size_t count, std::uint64_t seed = 7) {
  base::SplitMix64 random(seed);
  const network::Weights weights = weights_of(model);
  Lanes lane(weights, 1);
  std::vector<std::uint8_t> text = {65};
  while (text.size() < count) {
    lane.step(std::span(text).last(1));
    const auto logits = lane.logits(0);
    const float most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float x : logits) sum += std::exp(2 * static_cast<double>(x - most));
    double left = random.uniform() * sum;
    std::size_t byte = 0;
    while (byte < 255 && (left -= std::exp(2 * static_cast<double>(logits[byte] - most))) > 0) ++byte;
    text.push_back(static_cast<std::uint8_t>(byte));
  }
  return text;
}

}  // namespace dormouse::decode::testing
