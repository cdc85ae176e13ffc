// Floating point operations of a training pass, counted from the shapes of its products.
#pragma once

#include <string_view>
#include <vector>

#include "network/dormouse/config.h"

namespace dormouse::network {

struct StageFlops {
  std::string_view stage;  // as the Stages of loop.cpp and the layers name it; "" for what stands outside of all
  double forward = 0;      // of one position in all iterations, two a multiply-add; backward is twice that
};
// The products alone: neither element-wise work nor what the backward computes a second time. The recurrence counts in chunks.
std::vector<StageFlops> flops_per_position(const ModelConfig& config);

}  // namespace dormouse::network
