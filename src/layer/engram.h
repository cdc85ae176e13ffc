// Engram: hashed n-gram memory. The rows of a batch are read once; only the gate depends on the iteration.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "layer/init.h"

namespace dormouse::layer {

struct EngramParameters {
  Parameter table;       // [3R, D]
  Parameter key, value;  // [3D, d]
};

inline constexpr double kEngramNormEps = 1e-5;

EngramParameters declare_engram(std::int64_t rows, std::int64_t width, std::int64_t d);
void draw_engram(EngramParameters& p, std::uint64_t seed);
void for_each(EngramParameters& p, const std::function<void(Parameter&)>& visit);

// keys [N*3] (table/keys.h) -> table rows [N,3]: order i lives in rows [iR, (i+1)R), slot = key & (R-1).
tensor::Tensor engram_slots(std::span<const std::uint32_t> keys, std::int64_t rows);
// The rows a batch touches, sorted, each once.
std::vector<std::uint32_t> engram_touched(std::span<const std::uint32_t> keys, std::int64_t rows);

struct EngramRows {
  autograd::Var key, value;  // [N,d]
};
EngramRows engram_rows(autograd::Tape& tape, EngramParameters& p, const tensor::Tensor& slots);
// The gated read at one iteration: u [N,d] -> [N,d].
autograd::Var engram(autograd::Tape& tape, const EngramRows& rows, const autograd::Var& u);

// Step form: slots [b,3] -> key, value [b,d]; then read [b,d] from u [b,d].
void engram_rows_step(const ops::OpTable<float>& table, const EngramParameters& p, const tensor::Tensor& slots, float* key, float* value);
void engram_step(const ops::OpTable<float>& table, std::int64_t batch, std::int64_t d, const float* key, const float* value, const float* u,
                 float* read);

}  // namespace dormouse::layer
