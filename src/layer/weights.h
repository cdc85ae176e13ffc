// Weights as decoding reads them: matrices packed for products, tables looked up row by row, both as narrow as they are stored.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/packed.h"
#include "ops/narrow.h"

namespace dormouse::layer {

// The tensor of a name: of an export, or f32 parameters.
using WeightSource = std::function<format::Packed(const std::string& name)>;

// Rows [first, first + count) of a tensor [in,out] as W (count 0: all); transposed: a tensor [out,k] as W [k,out]. f16, and codes whose
// scales do not belong to the columns of W (no program of this project writes those), become f32.
ops::NarrowMatrix matrix(const WeightSource& source, const std::string& name, std::int64_t first = 0, std::int64_t count = 0);
ops::NarrowMatrix matrix_transposed(const WeightSource& source, const std::string& name);
std::vector<float> vector(const WeightSource& source, const std::string& name);

class LookupTable {
 public:
  LookupTable() = default;
  LookupTable(const WeightSource& source, const std::string& name);
  std::int64_t width() const { return packed_.shape.columns(); }
  std::size_t bytes() const { return packed_.codes.size() + packed_.scales.size_bytes(); }
  // y[i,:] = table[index[i],:], widened.
  void gather(std::span<const std::uint32_t> index, float* y) const;

 private:
  std::shared_ptr<std::byte> block_;  // what packed_ points into
  format::Packed packed_;
};

}  // namespace dormouse::layer
