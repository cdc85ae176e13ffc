// Matrices kept as narrow as they are stored, and products with them: what decoding reads of a model.
//
//   y[r,:] = x[r,:] W,   W [k,n]
//
// A row's bits depend on its own x and W only: not on the other rows, the thread count or the products beside it.
// int8 and ternary: W[i,j] = code[i,j] * scale[j]. A row of x is rounded to 16 bits first, x ~ q * max|x| / 32512 with whole q, so that
// sum_i q_i code_ij is exact in whole numbers: its bits are the same at every CPU level too. A row below 1e-33 counts as zeros.
// bf16: x and W are rounded to 16-bit whole numbers with the blocks and scales of Compute::i16 (ops/gemm.h): W when it is packed, x in
// every product. Only the limits differ: a block of x or of a column counts as zeros below 1e-33, and any finite one is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace dormouse::ops {

inline constexpr float kSmallestRow = 1e-33F;  // below it a scale would be a denormal, and its inverse soon infinite

enum class Narrow : std::uint8_t { f32, bf16, int8, ternary };
std::string_view name_of(Narrow type);

// Where the elements lie before packing: [k,n] row-major, or transposed, [n,k].
enum class Stored : std::uint8_t { straight, transposed };

// Strips of 32 columns, the last padded with zeros; within a strip, k rows (int8: groups of 4, ternary: groups of 16, padded) of
//   f32 32 floats; bf16 groups of 2, padded: 32 x 2 whole numbers of 16 bits;
//   int8 32 x 4 bytes, code + 128 of 4 rows; ternary 32 x 4 bytes, byte r of a column = (code + 1) of rows r, 4+r, 8+r, 12+r, 2 bits each.
class NarrowMatrix {
 public:
  static constexpr std::int64_t kStrip = 32;
  static constexpr std::int64_t kMostCodes = 1 << 16;  // rows of an int8 or ternary matrix: beyond it sums would not fit

  NarrowMatrix() = default;
  NarrowMatrix(std::int64_t k, std::int64_t n, const float* values, Stored stored);
  NarrowMatrix(std::int64_t k, std::int64_t n, const std::uint16_t* bf16, Stored stored);
  // codes -127..127, or with Narrow::ternary -1..1; scales [n]; k <= kMostCodes.
  NarrowMatrix(Narrow type, std::int64_t k, std::int64_t n, const std::int8_t* codes, Stored stored, std::span<const float> scales);

  Narrow type() const { return type_; }
  std::int64_t k() const { return k_; }
  std::int64_t n() const { return n_; }
  std::int64_t strips() const { return (n_ + kStrip - 1) / kStrip; }
  std::size_t strip_bytes() const;
  std::size_t bytes() const { return static_cast<std::size_t>(strips()) * strip_bytes() + scales_.size() * sizeof(float); }
  const std::byte* strip(std::int64_t index) const { return panels_.get() + static_cast<std::size_t>(index) * strip_bytes(); }
  // Codes: [n]; bf16: [blocks of k, strips * 32], 0 beyond n; f32: none.
  std::span<const float> scales() const { return scales_; }
  float value(std::int64_t i, std::int64_t j) const;  // W[i,j] as the products read it

 private:
  std::byte* make_panels(std::byte fill);
  Narrow type_ = Narrow::f32;
  std::int64_t k_ = 0, n_ = 0;
  std::shared_ptr<std::byte> panels_;
  std::vector<float> scales_;
};

// Which weights are read first; no bit of a result depends on it. What was read last is in the cache still: read that first.
enum class Sweep : std::uint8_t { forward, backward };

// x [rows,k], y [rows,n], dense.
template <class T>
struct Product {
  const NarrowMatrix* w = nullptr;
  const T* x = nullptr;
  T* y = nullptr;
};

// Reads every byte of the matrices once, split over all threads by strips, and does nothing with them: what a product of one row takes at
// least while no cache holds its weights. A checksum, one for each thread count.
std::uint64_t read_through(std::span<const NarrowMatrix* const> matrices);

}  // namespace dormouse::ops
