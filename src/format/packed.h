// Tensors of narrow values: f32, f16, bf16, int8 or 2-bit codes with scales (layout: docs/formats/dmexp.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dormouse::format {

enum class Storage : std::uint8_t { f32, f16, bf16, int8, ternary };
enum class Scales : std::uint8_t { none, rows, columns };  // of a [rows, columns] matrix: one scale per row, or per column

std::string_view name_of(Storage storage);
std::string_view name_of(Scales scales);
std::optional<Storage> storage_named(std::string_view name);
std::optional<Scales> scales_named(std::string_view name);
inline bool has_scales(Storage storage) { return storage == Storage::int8 || storage == Storage::ternary; }

struct PackedShape {
  std::vector<std::int64_t> dims;  // row-major, each at least 1; int8 and ternary: exactly two
  Storage storage = Storage::f32;
  Scales axis = Scales::none;

  std::int64_t rows() const;     // product of all dims but the last
  std::int64_t columns() const;  // the last
  std::int64_t size() const { return rows() * columns(); }
  std::int64_t scale_count() const;
  std::uint64_t code_bytes() const;
};
// False when an element count, or the bytes of the codes and scales, go beyond 2^62: the functions above must not be asked then.
bool is_countable(const PackedShape& shape);

// Bytes of a row of ternary codes: whole u32 words of 16.
std::uint64_t ternary_row_bytes(std::int64_t columns);

struct Packed {
  std::string name;
  PackedShape shape;
  std::span<const std::uint8_t> codes;
  std::span<const float> scales;
};

// f32 values, row-major, shape.size() of them.
void widen(const Packed& packed, std::span<float> out);
void widen_row(const Packed& packed, std::int64_t row, std::span<float> out);  // shape.columns() of them
// The codes of int8 and ternary, row-major, shape.size() of them.
void unpack(const Packed& packed, std::span<std::int8_t> codes);

// What is wrong with its bytes, "" when nothing: a value that is not finite, a code or scale that the format does not know.
std::string fault_of(const Packed& packed);

struct PackStats {
  std::int64_t flushed = 0;  // not zero, and became zero
  std::int64_t inexact = 0;  // ternary: outputs whose values were not all 0 or +-a
  float max_abs = 0, min_nonzero_abs = 0;
};
// Narrows (how: docs/formats/dmexp.md, "How the writer quantises") and adds to `stats`. codes: shape.code_bytes(), zeroed; scales:
// shape.scale_count(). The index of the first value that is not finite, or does not stay so; -1: none.
std::int64_t pack(const PackedShape& shape, std::span<const float> values, std::span<std::uint8_t> codes, std::span<float> scales,
                  PackStats& stats);

// The rule of a ternary output, for `count` values `stride` apart: sign codes -1, 0, 1 into `signs`; the scale. inexact: not all 0 or +-a.
float ternarise(const float* values, std::int64_t count, std::int64_t stride, std::int8_t* signs, bool& inexact);

}  // namespace dormouse::format
