#include "tensor/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "tensor/pool.h"

namespace dormouse::tensor {
namespace {

// Copies and fills above this many bytes are split over the OpenMP team.
constexpr std::int64_t kParallelBytes = std::int64_t{1} << 20;

template <class Body>
void for_spans(std::int64_t bytes, const Body& body) {
  const std::int64_t spans = (bytes + kParallelBytes - 1) / kParallelBytes;
  if (spans <= 1) {  // a region, even of one thread, costs a system call
    body(std::int64_t{0}, bytes);
    return;
  }
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < spans; ++i) {
    body(i * kParallelBytes, std::min(kParallelBytes, bytes - i * kParallelBytes));
  }
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  for_spans(bytes, [&](std::int64_t at, std::int64_t count) { std::memcpy(to + at, from + at, static_cast<std::size_t>(count)); });
}

void zero_bytes(std::byte* to, std::int64_t bytes) {
  for_spans(bytes, [&](std::int64_t at, std::int64_t count) { std::memset(to + at, 0, static_cast<std::size_t>(count)); });
}

std::int64_t width(Dtype dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

template <class From, class To>
void convert(const Tensor& from, const Tensor& to) {
  for (std::int64_t r = 0; r < from.rows(); ++r) {
    const From* x = from.data<From>() + r * from.ld();
    To* y = to.data<To>() + r * to.ld();
    for (std::int64_t c = 0; c < from.cols(); ++c) y[c] = static_cast<To>(x[c]);
  }
}

}  // namespace

std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::u32:
      return 4;
    case Dtype::f64:
      return 8;
    case Dtype::bf16:
    case Dtype::f16:
      return 2;
    case Dtype::u8:
      return 1;
  }
  throw base::Error("unknown dtype " + std::to_string(static_cast<int>(dtype)));
}

std::string name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "f32";
    case Dtype::f64:
      return "f64";
    case Dtype::bf16:
      return "bf16";
    case Dtype::f16:
      return "f16";
    case Dtype::u8:
      return "u8";
    case Dtype::u32:
      return "u32";
  }
  throw base::Error("unknown dtype " + std::to_string(static_cast<int>(dtype)));
}

Shape::Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  if (dims.size() > dims_.size()) throw base::Error("a tensor has at most 4 dimensions, not " + std::to_string(dims.size()));
  std::copy(dims.begin(), dims.end(), dims_.begin());
  std::int64_t product = 1;
  for (const std::int64_t d : dims) {
    if (d < 0 || (d > 0 && product > std::numeric_limits<std::int64_t>::max() / 16 / d)) {
      throw base::Error("impossible tensor shape " + text());
    }
    product *= d;
  }
}

std::int64_t Shape::size() const {
  std::int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= (*this)[i];
  return product;
}

std::string Shape::text() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) out += ',';
    out += std::to_string((*this)[i]);
  }
  return out + "]";
}

Tensor Tensor::shaped(const Shape& shape, Dtype dtype) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.ld_ = t.cols();
  return t;
}

Tensor Tensor::empty(const Shape& shape, Dtype dtype) {
  Tensor t = shaped(shape, dtype);
  t.storage_ = take_block(static_cast<std::size_t>(shape.size()) * size_of(dtype));
  return t;
}

Tensor Tensor::zeros(const Shape& shape, Dtype dtype) {
  Tensor t = empty(shape, dtype);
  t.fill_zero();
  return t;
}

template <class T>
Tensor Tensor::from(const Shape& shape, std::span<const T> values) {
  if (shape.size() != static_cast<std::int64_t>(values.size())) {
    throw base::Error("tensor " + shape.text() + " cannot hold " + std::to_string(values.size()) + " values");
  }
  Tensor t = empty(shape, kDtypeOf<T>);
  if (!values.empty()) std::memcpy(t.bytes(), values.data(), values.size_bytes());
  return t;
}

template <class T>
T* Tensor::data() const {
  if (dtype_ != kDtypeOf<T> || !defined()) {
    throw base::Error("tensor " + shape_.text() + " of " + (defined() ? name_of(dtype_) : "no storage") + " read as " +
                      name_of(kDtypeOf<T>));
  }
  return reinterpret_cast<T*>(bytes());
}

std::byte* Tensor::bytes() const { return storage_.get() + offset_; }

Tensor Tensor::view(const Shape& shape) const {
  if (shape.size() != size() || !contiguous()) {
    throw base::Error("tensor " + shape_.text() + (contiguous() ? "" : " (strided)") + " cannot be viewed as " + shape.text());
  }
  Tensor t = *this;
  t.shape_ = shape;
  t.ld_ = t.cols();
  return t;
}

Tensor Tensor::rows_slice(std::int64_t begin, std::int64_t count) const {
  if (rank() == 0 || begin < 0 || count < 0 || count > dim(0) - begin) {
    throw base::Error("no rows " + std::to_string(begin) + " + " + std::to_string(count) + " in tensor " + shape_.text());
  }
  std::array<std::int64_t, 4> dims{};
  std::int64_t inner_rows = 1;  // rows of the flattened view per index of the first dimension
  for (int i = 0; i < rank(); ++i) {
    dims[static_cast<std::size_t>(i)] = i == 0 ? count : dim(i);
    if (i > 0 && i < rank() - 1) inner_rows *= dim(i);
  }
  Tensor t = *this;
  t.shape_ = Shape(std::span(dims.data(), static_cast<std::size_t>(rank())));
  t.offset_ += begin * (rank() == 1 ? 1 : inner_rows * ld_) * width(dtype_);
  if (rank() == 1) t.ld_ = count;
  return t;
}

Tensor Tensor::columns(std::int64_t begin, std::int64_t count) const {
  if (rank() == 0 || begin < 0 || count < 0 || count > cols() - begin) {
    throw base::Error("no columns " + std::to_string(begin) + " + " + std::to_string(count) + " in tensor " + shape_.text());
  }
  std::array<std::int64_t, 4> dims{};
  for (int i = 0; i < rank(); ++i) dims[static_cast<std::size_t>(i)] = i == rank() - 1 ? count : dim(i);
  Tensor t = *this;
  t.shape_ = Shape(std::span(dims.data(), static_cast<std::size_t>(rank())));
  t.offset_ += begin * width(dtype_);
  return t;
}

Tensor Tensor::clone() const {
  Tensor t = empty(shape_, dtype_);
  t.copy_from(*this);
  return t;
}

Tensor Tensor::to(Dtype dtype) const {
  if (dtype == dtype_) return clone();
  Tensor t = empty(shape_, dtype);
  if (dtype_ == Dtype::f32 && dtype == Dtype::f64) {
    convert<float, double>(*this, t);
  } else if (dtype_ == Dtype::f64 && dtype == Dtype::f32) {
    convert<double, float>(*this, t);
  } else {
    throw base::Error("no conversion of a tensor from " + name_of(dtype_) + " to " + name_of(dtype));
  }
  return t;
}

void Tensor::fill_zero() const {
  if (contiguous()) {
    zero_bytes(bytes(), size() * width(dtype_));
    return;
  }
  for (std::int64_t r = 0; r < rows(); ++r) zero_bytes(bytes() + r * ld_ * width(dtype_), cols() * width(dtype_));
}

void Tensor::copy_from(const Tensor& other) const {
  if (other.shape_ != shape_ || other.dtype_ != dtype_) {
    throw base::Error("tensor " + shape_.text() + " of " + name_of(dtype_) + " cannot take a copy of " + other.shape_.text() + " of " +
                      name_of(other.dtype_));
  }
  if (contiguous() && other.contiguous()) {
    copy_bytes(bytes(), other.bytes(), size() * width(dtype_));
    return;
  }
  for (std::int64_t r = 0; r < rows(); ++r) {
    copy_bytes(bytes() + r * ld_ * width(dtype_), other.bytes() + r * other.ld_ * width(dtype_), cols() * width(dtype_));
  }
}

double Tensor::at(std::int64_t flat_index) const {
  if (flat_index < 0 || flat_index >= size()) throw base::Error("no element " + std::to_string(flat_index) + " in tensor " + shape_.text());
  const std::int64_t i = flat_index / cols() * ld_ + flat_index % cols();
  return dtype_ == Dtype::f64 ? data<double>()[i] : static_cast<double>(data<float>()[i]);
}

template Tensor Tensor::from(const Shape&, std::span<const float>);
template Tensor Tensor::from(const Shape&, std::span<const double>);
template Tensor Tensor::from(const Shape&, std::span<const std::uint16_t>);
template Tensor Tensor::from(const Shape&, std::span<const std::uint8_t>);
template Tensor Tensor::from(const Shape&, std::span<const std::uint32_t>);
template float* Tensor::data<float>() const;
template double* Tensor::data<double>() const;
template std::uint16_t* Tensor::data<std::uint16_t>() const;
template std::uint8_t* Tensor::data<std::uint8_t>() const;
template std::uint32_t* Tensor::data<std::uint32_t>() const;

}  // namespace dormouse::tensor
