#include "ops/narrow.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "tensor/pool.h"

namespace dormouse::ops {
namespace {

std::int64_t padded(std::int64_t k, std::int64_t group) { return (k + group - 1) / group * group; }

std::size_t at(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t n, Stored stored) {
  return static_cast<std::size_t>(stored == Stored::straight ? i * n + j : j * k + i);
}

// Column c of a strip of bf16: its 16-bit place in a row of 16 words.
std::int64_t bf16_place(std::int64_t c) { return 2 * (c % 16) + c / 16; }

}  // namespace

std::string_view name_of(Narrow type) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "int8", "ternary"};
  return kNames[static_cast<std::size_t>(type)];
}

std::size_t NarrowMatrix::strip_bytes() const {
  switch (type_) {
    case Narrow::f32:
      return static_cast<std::size_t>(k_ * kStrip * 4);
    case Narrow::bf16:
      return static_cast<std::size_t>(k_ * kStrip * 2);
    case Narrow::int8:
      return static_cast<std::size_t>(padded(k_, 4) * kStrip);
    default:
      return static_cast<std::size_t>(padded(k_, 16) * kStrip / 4);
  }
}

std::byte* NarrowMatrix::make_panels(std::byte fill) {
  const std::size_t size = static_cast<std::size_t>(strips()) * strip_bytes();
  panels_ = tensor::take_block(std::max<std::size_t>(size, 64));
  std::memset(panels_.get(), std::to_integer<int>(fill), size);
  return panels_.get();
}

NarrowMatrix::NarrowMatrix(std::int64_t k, std::int64_t n, const float* values, Stored stored) : type_(Narrow::f32), k_(k), n_(n) {
  auto* panels = reinterpret_cast<float*>(make_panels(std::byte{0}));
  for (std::int64_t j = 0; j < n; ++j) {
    float* column = panels + j / kStrip * k * kStrip + j % kStrip;
    for (std::int64_t i = 0; i < k; ++i) column[i * kStrip] = values[at(i, j, k, n, stored)];
  }
}

NarrowMatrix::NarrowMatrix(std::int64_t k, std::int64_t n, const std::uint16_t* bf16, Stored stored) : type_(Narrow::bf16), k_(k), n_(n) {
  static_assert(std::endian::native == std::endian::little, "the lower half of a word comes first");
  std::byte* panels = make_panels(std::byte{0});  // read as 32-bit words
  for (std::int64_t j = 0; j < n; ++j) {
    std::byte* column = panels + 2 * (j / kStrip * k * kStrip + bf16_place(j % kStrip));
    for (std::int64_t i = 0; i < k; ++i) std::memcpy(column + 2 * i * kStrip, &bf16[at(i, j, k, n, stored)], 2);
  }
}

NarrowMatrix::NarrowMatrix(Narrow type, std::int64_t k, std::int64_t n, const std::int8_t* codes, Stored stored,
                           std::span<const float> scales)
    : type_(type), k_(k), n_(n), scales_(scales.begin(), scales.end()) {
  if (k > kMostCodes)
    throw base::Error("a matrix of " + std::to_string(k) + " rows cannot be kept as " + std::string(name_of(type)) + ": the limit is " +
                      std::to_string(kMostCodes));
  if (type == Narrow::int8) {
    auto* panels = reinterpret_cast<std::uint8_t*>(make_panels(std::byte{128}));
    for (std::int64_t j = 0; j < n; ++j) {
      std::uint8_t* column = panels + j / kStrip * padded(k, 4) * kStrip + j % kStrip * 4;
      for (std::int64_t i = 0; i < k; ++i)
        column[i / 4 * 4 * kStrip + i % 4] = static_cast<std::uint8_t>(codes[at(i, j, k, n, stored)] + 128);
    }
    return;
  }
  auto* panels = reinterpret_cast<std::uint8_t*>(make_panels(std::byte{0x55}));  // every code 0
  for (std::int64_t j = 0; j < n; ++j) {
    std::uint8_t* column = panels + j / kStrip * (padded(k, 16) / 4) * kStrip + j % kStrip * 4;
    for (std::int64_t i = 0; i < k; ++i) {
      std::uint8_t& byte = column[i / 16 * 4 * kStrip + i % 4];
      const int shift = static_cast<int>(i % 16 / 4) * 2;
      byte = static_cast<std::uint8_t>((byte & ~(3 << shift)) | ((codes[at(i, j, k, n, stored)] + 1) << shift));
    }
  }
}

float NarrowMatrix::value(std::int64_t i, std::int64_t j) const {
  const std::byte* panel = strip(j / kStrip);
  const std::int64_t c = j % kStrip;
  const auto scale = [&] { return scales_[static_cast<std::size_t>(j)]; };
  switch (type_) {
    case Narrow::f32:
      return reinterpret_cast<const float*>(panel)[i * kStrip + c];
    case Narrow::bf16: {
      std::uint16_t bits;
      std::memcpy(&bits, panel + 2 * (i * kStrip + bf16_place(c)), 2);
      return base::f32_from_bf16(bits);
    }
    case Narrow::int8:
      return static_cast<float>(std::to_integer<int>(panel[i / 4 * 4 * kStrip + c * 4 + i % 4]) - 128) * scale();
    default:
      return static_cast<float>((std::to_integer<int>(panel[i / 16 * 4 * kStrip + c * 4 + i % 4]) >> (i % 16 / 4 * 2) & 3) - 1) * scale();
  }
}

}  // namespace dormouse::ops
