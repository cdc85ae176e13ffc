#include "format/packed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace dormouse::format {

namespace {

constexpr std::array<std::string_view, 5> kStorageNames{"f32", "f16", "bf16", "int8", "ternary"};
constexpr std::array<std::string_view, 3> kScalesNames{"none", "rows", "columns"};
constexpr std::uint64_t kLargest = std::uint64_t{1} << 62;
constexpr std::int64_t kCodesPerWord = 16;
constexpr double kInt8Limit = 127;
constexpr double kTernaryThreshold = 0.7;  // of the mean |w| (model.md 3)

template <class E, std::size_t N>
std::optional<E> named(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<E>(found - names.begin());
}

std::uint64_t width_of(Storage storage) { return storage == Storage::f32 ? 4 : storage == Storage::int8 ? 1 : 2; }

std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU; }
constexpr std::uint32_t kInfinity = 0x7f800000U;

template <class T>
T load(const std::uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

float widen_one(Storage storage, const std::uint8_t* codes, std::int64_t i) {
  if (storage == Storage::f32) return load<float>(codes + 4 * i);
  const auto bits = load<std::uint16_t>(codes + 2 * i);
  return storage == Storage::bf16 ? base::f32_from_bf16(bits) : base::f32_from_f16(bits);
}

void store_one(Storage storage, float value, std::uint8_t* codes, std::int64_t i) {
  if (storage == Storage::f32) {
    std::memcpy(codes + 4 * i, &value, 4);
    return;
  }
  const std::uint16_t bits = storage == Storage::bf16 ? base::bf16_from_f32(value) : base::f16_from_f32(value);
  std::memcpy(codes + 2 * i, &bits, 2);
}

std::int8_t ternary_code(const std::uint8_t* row, std::int64_t column) {
  const int pair = row[column / 4] >> (2 * (column % 4)) & 3;
  return static_cast<std::int8_t>(pair == 3 ? -1 : pair);
}

// What a code counts for: the row or column whose scale it takes.
std::int64_t output_of(const PackedShape& shape, std::int64_t row, std::int64_t column) {
  return shape.axis == Scales::rows ? row : column;
}

std::int8_t code_at(const PackedShape& shape, const std::uint8_t* codes, std::int64_t row, std::int64_t column) {
  if (shape.storage == Storage::int8) return static_cast<std::int8_t>(codes[row * shape.columns() + column]);
  return ternary_code(codes + static_cast<std::uint64_t>(row) * ternary_row_bytes(shape.columns()), column);
}

void count(float before, float after, PackStats& stats) {
  const std::uint32_t m = magnitude(after);
  if (m == 0) {
    if (magnitude(before) != 0) ++stats.flushed;
    return;
  }
  if (m > magnitude(stats.max_abs)) stats.max_abs = std::bit_cast<float>(m);
  if (magnitude(stats.min_nonzero_abs) == 0 || m < magnitude(stats.min_nonzero_abs)) stats.min_nonzero_abs = std::bit_cast<float>(m);
}

// One output, `count` values `stride` apart: codes from -127 to 127; the scale.
float quantise_int8(const float* values, std::int64_t count, std::int64_t stride, std::int8_t* codes) {
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(static_cast<double>(values[i * stride])));
  const auto scale = static_cast<float>(largest / kInt8Limit);
  if (!(scale >= FLT_MIN)) {
    std::fill(codes, codes + count, std::int8_t{0});
    return 0;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const double code = std::nearbyint(static_cast<double>(values[i * stride]) / static_cast<double>(scale));
    codes[i] = static_cast<std::int8_t>(std::clamp(code, -kInt8Limit, kInt8Limit));
  }
  return scale;
}

void put_code(const PackedShape& shape, std::uint8_t* codes, std::int64_t row, std::int64_t column, std::int8_t code) {
  if (shape.storage == Storage::int8) {
    codes[row * shape.columns() + column] = static_cast<std::uint8_t>(code);
    return;
  }
  const auto at = static_cast<std::uint64_t>(row) * ternary_row_bytes(shape.columns()) + static_cast<std::uint64_t>(column / 4);
  codes[at] = static_cast<std::uint8_t>(codes[at] | ((code & 3) << (2 * (column % 4))));
}

void quantise(const PackedShape& shape, std::span<const float> values, std::span<std::uint8_t> codes, std::span<float> scales,
              PackStats& stats) {
  const bool by_row = shape.axis == Scales::rows;
  const std::int64_t length = by_row ? shape.columns() : shape.rows(), stride = by_row ? 1 : shape.columns();
  std::vector<std::int8_t> output(static_cast<std::size_t>(length));
  for (std::int64_t o = 0; o < shape.scale_count(); ++o) {
    const float* first = values.data() + (by_row ? o * shape.columns() : o);
    bool inexact = false;
    const float scale = shape.storage == Storage::int8 ? quantise_int8(first, length, stride, output.data())
                                                       : ternarise(first, length, stride, output.data(), inexact);
    stats.inexact += inexact ? 1 : 0;
    scales[static_cast<std::size_t>(o)] = scale;
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int8_t code = output[static_cast<std::size_t>(i)];
      count(first[i * stride], static_cast<float>(code) * scale, stats);
      put_code(shape, codes.data(), by_row ? o : i, by_row ? i : o, code);
    }
  }
}

// The first byte that a row of ternary codes may not hold: a pair 10, or a pair that is not 00 beyond the last column.
std::string ternary_fault(const PackedShape& shape, std::span<const std::uint8_t> codes) {
  const std::uint64_t row_bytes = ternary_row_bytes(shape.columns());
  const auto used = static_cast<std::uint64_t>(shape.columns());
  for (std::uint64_t at = 0; at < codes.size(); ++at) {
    const unsigned byte = codes[at];
    if ((byte & ~(byte << 1) & 0xaaU) != 0) return fmt::format("holds the ternary code 10 in byte {} of its codes", at);
    const std::uint64_t column = at % row_bytes * 4;
    if (column + 4 > used && byte >> (2 * (column >= used ? 0 : used - column)) != 0)
      return fmt::format("holds a ternary code beyond its last column in byte {} of its codes", at);
  }
  return "";
}

std::string scale_fault(const Packed& packed) {
  for (std::size_t i = 0; i < packed.scales.size(); ++i) {
    const float scale = packed.scales[i];
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(scale);
    const bool zero = bits == 0;
    const double largest = packed.shape.storage == Storage::int8 ? kInt8Limit : 1;
    if (!zero && (bits > 0x7f7fffffU || scale < FLT_MIN || static_cast<double>(scale) * largest > static_cast<double>(FLT_MAX)))
      return fmt::format("has a scale of {} for {} {}; it must be 0, or positive, normal and finite", scale,
                         packed.shape.axis == Scales::rows ? "row" : "column", i);
  }
  if (std::find(packed.scales.begin(), packed.scales.end(), 0.0F) == packed.scales.end()) return "";
  for (std::int64_t r = 0; r < packed.shape.rows(); ++r) {
    for (std::int64_t c = 0; c < packed.shape.columns(); ++c) {
      const auto output = static_cast<std::size_t>(output_of(packed.shape, r, c));
      if (packed.scales[output] == 0 && code_at(packed.shape, packed.codes.data(), r, c) != 0)
        return fmt::format("has a code that is not 0 under a scale of 0 at [{},{}]", r, c);
    }
  }
  return "";
}

}  // namespace

std::string_view name_of(Storage storage) { return kStorageNames[static_cast<std::size_t>(storage)]; }
std::string_view name_of(Scales scales) { return kScalesNames[static_cast<std::size_t>(scales)]; }
std::optional<Storage> storage_named(std::string_view name) { return named<Storage>(kStorageNames, name); }
std::optional<Scales> scales_named(std::string_view name) { return named<Scales>(kScalesNames, name); }

std::int64_t PackedShape::columns() const { return dims.back(); }

std::int64_t PackedShape::rows() const {
  std::int64_t product = 1;
  for (std::size_t i = 0; i + 1 < dims.size(); ++i) product *= dims[i];
  return product;
}

std::int64_t PackedShape::scale_count() const {
  if (!has_scales(storage)) return 0;
  return axis == Scales::rows ? rows() : columns();
}

std::uint64_t PackedShape::code_bytes() const {
  if (storage == Storage::ternary) return static_cast<std::uint64_t>(rows()) * ternary_row_bytes(columns());
  return static_cast<std::uint64_t>(size()) * width_of(storage);
}

bool is_countable(const PackedShape& shape) {
  // 4 bytes an element bounds every storage; a ternary row may round up to 16 codes.
  std::uint64_t bytes = 64;
  for (const std::int64_t d : shape.dims) {
    if (d < 1 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(d), &bytes) || bytes > kLargest) return false;
  }
  return !shape.dims.empty();
}

std::uint64_t ternary_row_bytes(std::int64_t columns) {
  return static_cast<std::uint64_t>((columns + kCodesPerWord - 1) / kCodesPerWord) * sizeof(std::uint32_t);
}

void widen_row(const Packed& packed, std::int64_t row, std::span<float> out) {
  const PackedShape& shape = packed.shape;
  const std::int64_t columns = shape.columns();
  if (shape.storage == Storage::f32) {
    std::memcpy(out.data(), packed.codes.data() + 4 * row * columns, static_cast<std::size_t>(4 * columns));
    return;
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    out[static_cast<std::size_t>(c)] = has_scales(shape.storage) ? static_cast<float>(code_at(shape, packed.codes.data(), row, c)) *
                                                                       packed.scales[static_cast<std::size_t>(output_of(shape, row, c))]
                                                                 : widen_one(shape.storage, packed.codes.data(), row * columns + c);
  }
}

void widen(const Packed& packed, std::span<float> out) {
  const auto columns = static_cast<std::size_t>(packed.shape.columns());
  for (std::int64_t r = 0; r < packed.shape.rows(); ++r) widen_row(packed, r, out.subspan(static_cast<std::size_t>(r) * columns, columns));
}

void unpack(const Packed& packed, std::span<std::int8_t> codes) {
  const std::int64_t columns = packed.shape.columns();
  for (std::int64_t i = 0; i < packed.shape.size(); ++i)
    codes[static_cast<std::size_t>(i)] = code_at(packed.shape, packed.codes.data(), i / columns, i % columns);
}

std::string fault_of(const Packed& packed) {
  const PackedShape& shape = packed.shape;
  if (!has_scales(shape.storage)) {
    for (std::int64_t i = 0; i < shape.size(); ++i) {
      const float value = widen_one(shape.storage, packed.codes.data(), i);
      if (magnitude(value) >= kInfinity)
        return fmt::format("holds {} at element {}", magnitude(value) > kInfinity ? "NaN" : "an infinity", i);
    }
    return "";
  }
  if (shape.storage == Storage::int8) {
    const auto found = std::find(packed.codes.begin(), packed.codes.end(), std::uint8_t{0x80});
    if (found != packed.codes.end()) return fmt::format("holds the int8 code -128 at element {}", found - packed.codes.begin());
  } else if (const std::string fault = ternary_fault(shape, packed.codes); !fault.empty()) {
    return fault;
  }
  return scale_fault(packed);
}

std::int64_t pack(const PackedShape& shape, std::span<const float> values, std::span<std::uint8_t> codes, std::span<float> scales,
                  PackStats& stats) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (magnitude(values[i]) >= kInfinity) return static_cast<std::int64_t>(i);
  }
  if (has_scales(shape.storage)) {
    quantise(shape, values, codes, scales, stats);
    return -1;
  }
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    const float before = values[static_cast<std::size_t>(i)];
    store_one(shape.storage, before, codes.data(), i);
    const float after = widen_one(shape.storage, codes.data(), i);
    if (magnitude(after) >= kInfinity) return i;
    count(before, after, stats);
  }
  return -1;
}

float ternarise(const float* values, std::int64_t count, std::int64_t stride, std::int8_t* signs, bool& inexact) {
  double sum = 0, largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double a = std::fabs(static_cast<double>(values[i * stride]));
    sum += a;
    largest = std::max(largest, a);
  }
  double kept = 0;
  std::int64_t selected = 0;
  inexact = false;
  const auto select = [&](double threshold) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto w = static_cast<double>(values[i * stride]);
      const double a = std::fabs(w);
      const bool keep = a > threshold;
      signs[i] = static_cast<std::int8_t>(keep ? (w < 0 ? -1 : 1) : 0);
      kept += keep ? a : 0;
      selected += keep ? 1 : 0;
      if (a != 0 && a != largest) inexact = true;
    }
  };
  select(kTernaryThreshold * sum / static_cast<double>(count));
  auto scale = static_cast<float>(selected > 0 ? kept / static_cast<double>(selected) : 0);
  if (!inexact && largest > 0) {
    select(0);
    scale = static_cast<float>(largest);
  }
  if (scale >= FLT_MIN) return scale;
  std::fill(signs, signs + count, std::int8_t{0});
  return 0;
}

}  // namespace dormouse::format
