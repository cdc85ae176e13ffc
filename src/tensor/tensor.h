// Tensor: a row-major view into pooled, 64-byte-aligned storage.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dormouse::tensor {

enum class Dtype : std::uint8_t { f32, f64, bf16, u8, u32, f16 };

std::size_t size_of(Dtype dtype);
std::string name_of(Dtype dtype);

template <class T>
inline constexpr Dtype kDtypeOf = Dtype::f32;
template <>
inline constexpr Dtype kDtypeOf<double> = Dtype::f64;
template <>
inline constexpr Dtype kDtypeOf<std::uint16_t> = Dtype::bf16;
template <>
inline constexpr Dtype kDtypeOf<std::uint8_t> = Dtype::u8;
template <>
inline constexpr Dtype kDtypeOf<std::uint32_t> = Dtype::u32;

// Up to four dimensions.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  std::int64_t size() const;  // product; 1 for rank 0
  bool operator==(const Shape&) const = default;
  std::string text() const;  // "[8,256,128]"

 private:
  std::array<std::int64_t, 4> dims_{};
  int rank_ = 0;
};

// Shares its storage when copied. The last dimension is dense; the rows of the flattened [rows, cols] view may lie `ld`
// elements apart (a slice of columns), nothing else is strided.
class Tensor {
 public:
  Tensor() = default;
  static Tensor empty(const Shape& shape, Dtype dtype);   // uninitialised
  static Tensor shaped(const Shape& shape, Dtype dtype);  // a shape without storage: defined() is false
  static Tensor zeros(const Shape& shape, Dtype dtype);
  template <class T>
  static Tensor from(const Shape& shape, std::span<const T> values);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  Dtype dtype() const { return dtype_; }
  int rank() const { return shape_.rank(); }
  std::int64_t dim(int i) const { return shape_[i]; }
  std::int64_t size() const { return shape_.size(); }
  std::int64_t cols() const { return rank() == 0 ? 1 : shape_[rank() - 1]; }
  std::int64_t rows() const { return cols() == 0 ? 0 : size() / cols(); }
  std::int64_t ld() const { return ld_; }
  bool contiguous() const { return ld_ == cols() || rows() <= 1; }

  template <class T>
  T* data() const;  // asserts the dtype
  std::byte* bytes() const;

  Tensor view(const Shape& shape) const;                            // same size, contiguous only
  Tensor rows_slice(std::int64_t begin, std::int64_t count) const;  // of the first dimension
  Tensor columns(std::int64_t begin, std::int64_t count) const;     // of the last dimension, keeps ld
  Tensor clone() const;                                             // contiguous copy
  Tensor to(Dtype dtype) const;                                     // f32 <-> f64 copy
  void fill_zero() const;
  void copy_from(const Tensor& other) const;  // same shape and dtype
  double at(std::int64_t flat_index) const;   // tests and messages; f32, f64 only

 private:
  std::shared_ptr<std::byte> storage_;
  std::int64_t offset_ = 0;  // bytes
  Shape shape_;
  std::int64_t ld_ = 0;
  Dtype dtype_ = Dtype::f32;
};

// The caching pool behind Tensor: freed blocks are kept by size class and handed out again. Not initialised on reuse.
struct PoolUse {
  std::uint64_t live_bytes = 0;    // in tensors now
  std::uint64_t cached_bytes = 0;  // kept for reuse
  std::uint64_t peak_bytes = 0;    // highest live
};
PoolUse pool_use();
void trim_pool();  // returns cached blocks to the system

}  // namespace dormouse::tensor
