// How kernels are split over threads: always by index, so a result never depends on which thread was faster. Regions use the
// whole team even for few pieces: libgomp ends the threads a smaller team leaves out, and makes them anew for the next.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/threads.h"
#include "ops/cpu/team.h"

namespace dormouse::ops::cpu {

// Below this many elements a kernel stays on the calling thread: a fork costs as much as the work.
inline constexpr std::int64_t kSerialElements = 16384;
inline constexpr std::int64_t kSerialElementsAwake = 3072;  // on a team that is awake

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
inline std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

inline int team_size() {
  if (const Team* team = Team::current()) return team->size();
  return omp_in_parallel() != 0 || Team::is_alone() ? 1 : omp_get_max_threads();
}

inline bool worth_threads(std::int64_t elements) {
  return elements >= (Team::current() != nullptr ? kSerialElementsAwake : kSerialElements) && team_size() > 1;
}

// body(id, threads) on every thread, with the arithmetic of the calling one.
template <class Body>
void on_team(const Body& body) {
  if (team_size() == 1) {
    body(0, 1);
    return;
  }
  if (Team* team = Team::current()) {
    team->run([](const void* data, int id, int size) noexcept { (*static_cast<const Body*>(data))(id, size); }, &body);
    return;
  }
  const unsigned control = base::arithmetic();
  const base::Arithmetic plain(base::kPlainArithmetic);  // what workers that are started here begin with, and keep for other regions
#pragma omp parallel
  {
    const base::Arithmetic same(control);
    body(omp_get_thread_num(), omp_get_num_threads());
  }
}

// body(begin, end) over [0, n), one contiguous range per thread, cut at multiples of `grain`; `elements` is the size of the
// whole work. For kernels whose elements or rows do not meet.
template <class Body>
void for_ranges(std::int64_t n, std::int64_t grain, std::int64_t elements, const Body& body) {
  if (n <= 0) return;
  const std::int64_t pieces = ceil_div(n, grain);
  if (pieces == 1 || !worth_threads(elements)) {
    body(std::int64_t{0}, n);
    return;
  }
  on_team([&](std::int64_t id, std::int64_t team) {
    const std::int64_t begin = pieces * id / team * grain;
    const std::int64_t end = std::min(n, pieces * (id + 1) / team * grain);
    if (begin < end) body(begin, end);
  });
}

// The same for a body that may throw: what the first range that failed threw is thrown when all are done.
void split(std::int64_t n, std::int64_t elements, const std::function<void(std::int64_t begin, std::int64_t end)>& body);

// A grid of rows by columns (both > 0), for results whose elements do not meet: rows are cut first, columns only where there are fewer rows
// than threads.
struct GridPart {
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;
};
template <class Body>
void for_grid(std::int64_t rows, std::int64_t columns, std::int64_t products, const Body& body) {
  constexpr std::int64_t kSerialProducts = 64 * 1024;  // below this many multiplications one thread does it
  const std::int64_t threads = products < kSerialProducts ? 1 : team_size();
  const std::int64_t row_pieces = std::min(threads, rows);
  const std::int64_t column_pieces = std::min(columns, threads / row_pieces);
  for_ranges(row_pieces * column_pieces, 1, threads == 1 ? 0 : kSerialElements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t r = i / column_pieces, s = i % column_pieces;
      body(GridPart{rows * r / row_pieces, rows * (r + 1) / row_pieces, columns * s / column_pieces, columns * (s + 1) / column_pieces});
    }
  });
}

// Fixed blocks of rows for reductions over rows: the cut depends on `rows` alone, so sums of per-block partial results, added
// in block order, have the same bits for every thread count.
struct RowBlocks {
  std::int64_t rows = 0, size = 0, count = 0;
  explicit RowBlocks(std::int64_t rows_in, std::int64_t most = 64, std::int64_t least_rows = 32) : rows(rows_in) {
    size = std::max(least_rows, round_up(ceil_div(rows, most), 8));
    count = ceil_div(rows, size);
  }
};

// body(block, begin, end)
template <class Body>
void for_blocks(const RowBlocks& blocks, std::int64_t elements, const Body& body) {
  const auto run = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) body(i, i * blocks.size, std::min(blocks.rows, (i + 1) * blocks.size));
  };
  if (blocks.count <= 1 || !worth_threads(elements)) {
    run(0, blocks.count);
    return;
  }
  on_team([&](std::int64_t id, std::int64_t team) { run(blocks.count * id / team, blocks.count * (id + 1) / team); });
}

// Per-thread, 64-byte-aligned, uninitialised scratch that grows and stays. Each use has its own slot, so that one kernel's
// buffers do not meet; valid until the same thread asks for the same slot again.
enum class Slot : std::uint8_t { partials, pack_a, pack_b, tile, tile_pack, convert_a, convert_b, onednn, hidden, count };
void* scratch_bytes(Slot slot, std::size_t bytes);
inline float* scratch(Slot slot, std::int64_t floats) {
  return static_cast<float*>(scratch_bytes(slot, static_cast<std::size_t>(floats) * sizeof(float)));
}

// Partial column sums: zeroed rows of `width` floats, one per block; `add_to` adds their sum in block order, out[j] += sum.
class Partials {
 public:
  Partials(const RowBlocks& blocks, std::int64_t width);
  float* row(std::int64_t block) const { return data_ + block * stride_; }
  void add_to(std::int64_t offset, std::int64_t count, float* out) const;  // out null: nothing

 private:
  std::int64_t blocks_ = 0, stride_ = 0;
  float* data_ = nullptr;
};

}  // namespace dormouse::ops::cpu
