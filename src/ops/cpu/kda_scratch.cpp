#include "ops/cpu/kda_scratch.h"

#include <hwy/aligned_allocator.h>

#include <atomic>
#include <cmath>
#include <string>

#include "base/error.h"
#include "ops/cpu/kda.h"

namespace dormouse::ops::cpu {
namespace {

std::atomic<std::uint64_t> pairwise_chunks{0};

}  // namespace

KdaUnit::KdaUnit(const Kda& p, std::size_t unit) {
  const auto heads = static_cast<std::size_t>(p.heads);
  hd = static_cast<std::size_t>(p.head_dim);
  ld = (hd + 15) / 16 * 16;
  time = static_cast<std::size_t>(p.time);
  chunks = (time + kKdaRows - 1) / kKdaRows;
  row = heads * hd;
  beta_row = heads;
  x = unit / heads * time * row + unit % heads * hd;
  beta = unit / heads * time * heads + unit % heads;
  state = unit * hd * hd;
  chunk_state = state * chunks;
  scale = 1 / std::sqrt(static_cast<float>(hd));
}

std::size_t kda_units(const Kda& p) { return p.head_dim > 0 ? static_cast<std::size_t>(p.batch * p.heads) : 0; }

float* kda_scratch(std::size_t floats) {
  thread_local hwy::AlignedFreeUniquePtr<float[]> block;
  thread_local std::size_t size = 0;
  if (size < floats) {
    block = hwy::AllocateAligned<float>(floats);
    size = block ? floats : 0;
  }
  return block.get();
}

void kda_out_of_memory(std::size_t floats) {
  throw base::OutOfMemory("kda: no memory for " + std::to_string(floats * sizeof(float)) +
                          " bytes of scratch per thread; use fewer threads");
}

void count_pairwise_chunks(std::uint64_t chunks) {
  if (chunks > 0) pairwise_chunks.fetch_add(chunks, std::memory_order_relaxed);
}

std::uint64_t kda_pairwise_chunks() { return pairwise_chunks.load(std::memory_order_relaxed); }

}  // namespace dormouse::ops::cpu
