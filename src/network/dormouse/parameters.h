// Every weight of the network, as plain structs visited by one function.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "layer/engram.h"
#include "layer/expert.h"
#include "layer/kda.h"
#include "layer/spectral.h"
#include "network/dormouse/config.h"
#include "tensor/parameter.h"

namespace dormouse::network {

using tensor::Parameter;

struct Parameters {
  Parameter embedding;            // [256,d]
  Parameter controller;           // [2d, pad4(3+E)]
  Parameter iteration_embedding;  // [T,d]
  Parameter loop_norm;            // [d]
  Parameter residual_scale;       // [1]
  Parameter memory_dense;         // [d,d]
  layer::KdaParameters attention;
  layer::EngramParameters engram;
  std::vector<layer::ExpertParameters> experts;
  layer::SpectralParameters readout;
  Parameter final_norm;  // [d]
  layer::SpectralParameters head;
};

// In one order for ever: counts, files and the optimizer follow it. Parameters of arms that are off do not exist and are not visited.
void for_each(Parameters& parameters, const ModelConfig& config, const std::function<void(Parameter&)>& visit);
std::vector<Parameter*> list(Parameters& parameters, const ModelConfig& config);

// Allocates and draws every tensor from its own stream (layer/init.h).
Parameters make_parameters(const ModelConfig& config, std::uint64_t seed);
// Names, roles and shapes without storage, whatever size the config asks for: counts, and files not yet believed.
Parameters declare_shapes(const ModelConfig& config);
// The same with storage, values not drawn.
Parameters declare_parameters(const ModelConfig& config);

std::int64_t count(Parameters& parameters, const ModelConfig& config);

}  // namespace dormouse::network
