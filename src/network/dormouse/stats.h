// What one iteration looked like: rms of the stream and how far the gates are open.
#pragma once

#include "network/dormouse/loop.h"

namespace dormouse::network {

// u [N,d], gates [N,3+E], f32 or f64.
IterationStats iteration_stats(const ModelConfig& config, const tensor::Tensor& u, const tensor::Tensor& gates);

}  // namespace dormouse::network
