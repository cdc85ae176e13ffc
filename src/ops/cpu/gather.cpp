#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"

namespace dormouse::ops::cpu {

void gather(std::int64_t rows, std::int64_t d, const std::uint32_t* index, const float* table, float* y) {
  for_ranges(rows, 8, rows * d, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::memcpy(y + r * d, table + std::int64_t{index[r]} * d, static_cast<std::size_t>(d) * sizeof(float));
    }
  });
}

// Split by columns: two rows may name the same table row, and its sum keeps the order of the rows.
void gather_backward(std::int64_t rows, std::int64_t d, const std::uint32_t* index, const float* dy, float* dtable) {
  if (dtable == nullptr) return;
  for_ranges(d, 16, rows * d, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* __restrict from = dy + r * d;
      float* __restrict to = dtable + std::int64_t{index[r]} * d;
      for (std::int64_t j = begin; j < end; ++j) to[j] += from[j];
    }
  });
}

}  // namespace dormouse::ops::cpu
