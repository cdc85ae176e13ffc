// What the two sources of the KDA kernels share outside the per-target code: the view of one unit and the thread's scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/ops.h"

namespace dormouse::ops::cpu {

inline constexpr std::size_t kKdaRows = static_cast<std::size_t>(kKdaChunk);

// One (batch, head) unit. Row i of q,k,v,g,o stands at x + i*row, beta at beta + i*beta_row.
struct KdaUnit {
  std::size_t hd = 0, ld = 0, time = 0, chunks = 0;  // ld: hd rounded up to 16
  std::size_t row = 0, beta_row = 0;
  std::size_t x = 0, beta = 0, state = 0, chunk_state = 0;
  float scale = 1;  // hd^-1/2

  KdaUnit(const Kda& p, std::size_t unit);
  std::size_t rows_of(std::size_t chunk) const { return chunk + 1 < chunks ? kKdaRows : time - chunk * kKdaRows; }
};

struct KdaForward {
  const float *q, *k, *v, *g, *beta, *state0;
  float *o, *state, *chunk_states;
};

struct KdaBackward {
  const float *q, *k, *v, *g, *beta, *chunk_states, *d_o, *dstate;
  float *dq, *dk, *dv, *dg, *dbeta, *dstate0;
};

std::size_t kda_units(const Kda& p);

// The calling thread's scratch, at least `floats` floats, aligned for any vector; kept until the thread ends. Null: out of memory.
float* kda_scratch(std::size_t floats);
[[noreturn]] void kda_out_of_memory(std::size_t floats);

void count_pairwise_chunks(std::uint64_t chunks);

// Runs unit(KdaUnit, io, scratch) -> pairwise chunks for every unit, split by index over the threads.
template <class Io>
void each_kda_unit(const Kda& p, const Io& io, std::size_t (*unit)(const KdaUnit&, const Io&, float*), std::size_t floats) {
  const auto units = static_cast<std::int64_t>(kda_units(p));
  bool out_of_memory = false;
  std::uint64_t pairwise = 0;
#pragma omp parallel for schedule(static) reduction(|| : out_of_memory) reduction(+ : pairwise) if (units > 1)
  for (std::int64_t i = 0; i < units; ++i) {
    float* scratch = kda_scratch(floats);
    if (scratch == nullptr) {
      out_of_memory = true;
    } else {
      pairwise += unit(KdaUnit(p, static_cast<std::size_t>(i)), io, scratch);
    }
  }
  if (out_of_memory) kda_out_of_memory(floats);
  count_pairwise_chunks(pairwise);
}

// Hands out blocks of scratch, each shifted by one cache line against the last so that equal rows do not alias at 4 KiB.
class KdaCarver {
 public:
  explicit KdaCarver(float* base) : next_(base) {}
  float* take(std::size_t floats) {
    float* block = next_;
    next_ += (floats + 15) / 16 * 16 + 16;
    return block;
  }

 private:
  float* next_;
};

}  // namespace dormouse::ops::cpu
