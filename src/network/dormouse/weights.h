// A model as decoding holds it: every matrix packed for products, as narrow as its file stores it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "layer/engram.h"
#include "layer/expert.h"
#include "layer/kda.h"
#include "layer/spectral.h"
#include "layer/weights.h"
#include "network/dormouse/config.h"
#include "network/dormouse/export.h"
#include "network/dormouse/parameters.h"

namespace dormouse::network {

struct Weights {
  ModelConfig config;
  std::filesystem::path path;  // the file they came from
  std::int64_t step = 0;       // of training, as that file says
  layer::LookupTable embedding;
  ops::NarrowMatrix controller_u, controller_h0;  // [d,width] each: of u, of h0
  std::vector<float> iteration_embedding;         // [T,d]
  std::vector<float> loop_norm, final_norm;       // [d]
  std::vector<float> residual_scale;              // [1]
  ops::NarrowMatrix memory_dense;
  layer::KdaWeights attention;
  layer::EngramWeights engram;
  std::vector<layer::ExpertWeights> experts;
  layer::SpectralWeights readout, head;
};

// The export may go afterwards.
Weights read_weights(const Export& file);
// f32, of a model in memory.
Weights read_weights(Parameters& parameters, const ModelConfig& config);

// CRC-32 of the config as TOML, then of every parameter as f32, in the order of for_each.
std::uint32_t weights_crc(const Export& file);
std::uint32_t weights_crc(Parameters& parameters, const ModelConfig& config);

// The matrices that a byte of text is multiplied with: once per iteration; once.
std::vector<const ops::NarrowMatrix*> loop_matrices(const Weights& weights);
std::vector<const ops::NarrowMatrix*> once_matrices(const Weights& weights);

}  // namespace dormouse::network
