#include "layer/weights.h"

#include <algorithm>
#include <cstring>

#include "tensor/pool.h"

namespace dormouse::layer {

using format::Packed;
using format::Scales;
using format::Storage;
using ops::Narrow;
using ops::NarrowMatrix;
using ops::Stored;

namespace {

// Rows [first, first + count) of the stored tensor.
NarrowMatrix pack(const Packed& packed, Stored stored, std::int64_t first, std::int64_t count) {
  const std::int64_t rows = count, columns = packed.shape.columns();
  const std::int64_t k = stored == Stored::straight ? rows : columns, n = stored == Stored::straight ? columns : rows;
  const std::int64_t at = first * columns;
  const Storage storage = packed.shape.storage;
  const Scales wanted = stored == Stored::straight ? Scales::columns : Scales::rows;
  if (storage == Storage::f32) return {k, n, reinterpret_cast<const float*>(packed.codes.data()) + at, stored};
  if (storage == Storage::bf16) return {k, n, reinterpret_cast<const std::uint16_t*>(packed.codes.data()) + at, stored};
  if (has_scales(storage) && packed.shape.axis == wanted && k <= NarrowMatrix::kMostCodes) {
    std::vector<std::int8_t> codes(static_cast<std::size_t>(packed.shape.size()));
    format::unpack(packed, codes);
    return {storage == Storage::int8 ? Narrow::int8 : Narrow::ternary, k, n, codes.data() + at, stored, packed.scales};
  }
  std::vector<float> values(static_cast<std::size_t>(packed.shape.size()));
  format::widen(packed, values);
  return {k, n, values.data() + at, stored};
}

}  // namespace

NarrowMatrix matrix(const WeightSource& source, const std::string& name, std::int64_t first, std::int64_t count) {
  const Packed packed = source(name);
  return pack(packed, Stored::straight, first, count > 0 ? count : packed.shape.rows());
}

NarrowMatrix matrix_transposed(const WeightSource& source, const std::string& name) {
  const Packed packed = source(name);
  return pack(packed, Stored::transposed, 0, packed.shape.rows());
}

std::vector<float> vector(const WeightSource& source, const std::string& name) {
  const Packed packed = source(name);
  std::vector<float> values(static_cast<std::size_t>(packed.shape.size()));
  format::widen(packed, values);
  return values;
}

LookupTable::LookupTable(const WeightSource& source, const std::string& name) : packed_(source(name)) {
  const std::size_t codes = (packed_.codes.size() + 63) / 64 * 64, scales = packed_.scales.size_bytes();
  block_ = tensor::take_block(codes + scales);
  std::memcpy(block_.get(), packed_.codes.data(), packed_.codes.size());
  if (scales > 0) std::memcpy(block_.get() + codes, packed_.scales.data(), scales);
  packed_.codes = {reinterpret_cast<const std::uint8_t*>(block_.get()), packed_.codes.size()};
  packed_.scales = {reinterpret_cast<const float*>(block_.get() + codes), packed_.scales.size()};
}

void LookupTable::gather(std::span<const std::uint32_t> index, float* y) const {
  for (std::size_t i = 0; i < index.size(); ++i)
    format::widen_row(packed_, index[i], {y + static_cast<std::int64_t>(i) * width(), static_cast<std::size_t>(width())});
}

}  // namespace dormouse::layer
