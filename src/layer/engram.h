// Engram: hashed n-gram memory. The rows of a batch are read once; only the gate depends on the iteration.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "layer/init.h"
#include "layer/scratch.h"
#include "layer/weights.h"

namespace dormouse::layer {

struct EngramParameters {
  Parameter table;       // [3R, D]
  Parameter key, value;  // [3D, d]
};

inline constexpr double kEngramNormEps = 1e-5;

EngramParameters declare_engram(std::int64_t rows, std::int64_t width, std::int64_t d);
void draw_engram(EngramParameters& p, std::uint64_t seed);
void draw_engram_table(EngramParameters& p, std::uint64_t seed);  // the same rows again
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

struct EngramWeights {
  LookupTable table;             // [3R,D]
  ops::NarrowMatrix key, value;  // [3D,d]
};
EngramWeights read_engram(const WeightSource& source, const std::string& name);
template <class Visit>
void for_each_matrix(const EngramWeights& w, const Visit& visit) {
  visit(w.key);
  visit(w.value);
}

// Step form: slots [rows,3] -> key, value [rows,d]; then read [rows,d] from u [rows,d], with space for saved [rows,4].
void engram_rows_step(const ops::OpTable<float>& table, const EngramWeights& w, const tensor::Tensor& slots, Scratch& scratch, float* key,
                      float* value);
void engram_step(const ops::OpTable<float>& table, std::int64_t rows, std::int64_t d, const float* key, const float* value, const float* u,
                 float* read, float* saved);

}  // namespace dormouse::layer
