// Experts: low-rank FFNs blended by the controller: dense, every expert runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "layer/spectral.h"

namespace dormouse::layer {

struct ExpertParameters {
  SpectralParameters up, down;  // d -> f, f -> d
};

ExpertParameters declare_expert(const std::string& name, std::int64_t d, std::int64_t f, std::int64_t rank);
// scale_init "one": s = 1; "unit": s = sqrt(out/k), so that an input of unit rms gives an output of about unit rms; "silent": "unit" for
// the hidden layer and s = 0 for what the expert writes, so that it starts without noise that the gate learns to shut out.
void draw_expert(ExpertParameters& p, const std::string& scale_init, std::uint64_t seed);
void for_each(ExpertParameters& p, const std::function<void(Parameter&)>& visit);

// sum_e gates[:,3+e] * Down_e(silu(Up_e(z))): z [N,d] -> [N,d].
autograd::Var experts(autograd::Tape& tape, std::vector<ExpertParameters>& experts, const autograd::Var& z, const autograd::Var& gates);

struct ExpertWeights {
  SpectralWeights up, down;
};
ExpertWeights read_expert(const WeightSource& source, const std::string& name);
template <class Visit>
void for_each_matrix(const ExpertWeights& w, const Visit& visit) {
  for_each_matrix(w.up, visit);
  for_each_matrix(w.down, visit);
}

// Step form: z [rows,d] -> y [rows,d]; gates [rows,gate_width].
void experts_step(const ops::OpTable<float>& table, const std::vector<ExpertWeights>& experts, std::int64_t rows, const float* z,
                  const float* gates, std::int64_t gate_width, Scratch& scratch, float* y);

}  // namespace dormouse::layer
