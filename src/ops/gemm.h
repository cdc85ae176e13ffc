// The matrix product: its shape, and how it reads its inputs. Row-major; sizes may be 0.
#pragma once

#include <cstdint>

namespace dormouse::ops {

// How a product reads its inputs. bf16 rounds them to bf16 (nearest even) and sums in f32.
// i16: k is cut into ceil(k / 512) blocks of equal (even) size. In a block every row of op(a) and every column of op(b) has one scale,
//   s = max(norm / 46000, most / 32767) with `norm` its Euclidean norm, `most` its largest |x|,
// and x counts as round(x/s) s. So |sum| <= (46000 + sqrt(512)/2)^2 < 2^31: sums of a block are exact, whatever the order. A product is
// wrong by about 1e-5 |a||b|, and by 7e-4 |a||b| at most, where all roundings of a row go one way (all its values equal, say). A norm below
// 1e-16 counts as 0: the squares of such values may be denormal. One that is not finite (from 1.8e19 on) makes NaN of its row or column.
enum class Compute : std::uint8_t { f32, bf16, i16 };
inline constexpr std::int64_t kI16Block = 512;
inline constexpr float kI16Norm = 46000, kI16Largest = 32767, kI16Smallest = 1e-16F;

// The blocks of k.
struct I16Blocks {
  std::int64_t k = 0, size = 2, count = 1;
  explicit I16Blocks(std::int64_t all) : k(all) {
    if (k <= 0) return;
    const std::int64_t least = (k + kI16Block - 1) / kI16Block;
    size = ((k + least - 1) / least + 1) / 2 * 2;
    count = (k + size - 1) / size;
  }
  std::int64_t depth(std::int64_t block) const { return k - block * size < size ? k - block * size : size; }
};

// c[m,n] = op(a)[m,k] op(b)[k,n] (+ c when accumulate). Stored a is [m,k] (or [k,m] when transpose_a), b [k,n] (or [n,k]);
// lda, ldb, ldc are the distances between stored rows.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  Compute compute = Compute::f32;
  bool symmetric = false;  // known to come out so up to rounding, and c too when it is added to: half may be computed and copied
  // Whether this product is one of whole numbers: i16, and not so narrow that rounding its inputs would take longer than it saves; those
  // are f32. m does not count: the rows of a text have the same bits however many there are.
  bool whole() const { return compute == Compute::i16 && n >= 64 && k >= 64; }
};

}  // namespace dormouse::ops
