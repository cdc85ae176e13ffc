#include "ops/narrow.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "ops/gemm.h"
#include "tensor/pool.h"

namespace dormouse::ops {
namespace {

std::int64_t padded(std::int64_t k, std::int64_t group) { return (k + group - 1) / group * group; }

std::size_t at(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t n, Stored stored) {
  return static_cast<std::size_t>(stored == Stored::straight ? i * n + j : j * k + i);
}

// Rounds halves to the even number, for |x| < 2^22: what is added leaves no bit behind the point.
float round_to_whole(float x) {
  constexpr float kNoFraction = 12582912;  // 1.5 * 2^23
  return (x + kNoFraction) - kNoFraction;
}

// A block of a strip: tile [depth, kStrip] becomes whole numbers in pairs along k, as kept; scale [kStrip].
void round_tile(std::int64_t depth, const float* tile, std::int16_t* to, float* scale) {
  constexpr std::int64_t kStrip = NarrowMatrix::kStrip;
  double squares[kStrip] = {};
  float most[kStrip] = {}, inverse[kStrip];
  for (std::int64_t i = 0; i < depth; ++i) {
    for (std::int64_t c = 0; c < kStrip; ++c) {
      const float x = tile[i * kStrip + c];
      squares[c] += static_cast<double>(x) * static_cast<double>(x);
      most[c] = std::max(most[c], std::abs(x));
    }
  }
  for (std::int64_t c = 0; c < kStrip; ++c) {
    const auto least = static_cast<float>(std::sqrt(squares[c]) / static_cast<double>(kI16Norm));
    scale[c] = !std::isfinite(squares[c]) ? NAN : most[c] < kSmallestRow ? 0 : std::max(least, most[c] / kI16Largest);
    inverse[c] = scale[c] > 0 ? 1 / scale[c] : 0;
  }
  for (std::int64_t i = 0; i < depth; ++i) {
    for (std::int64_t c = 0; c < kStrip; ++c) {
      const float x = scale[c] > 0 ? round_to_whole(tile[i * kStrip + c] * inverse[c]) : 0;
      to[(i / 2 * kStrip + c) * 2 + i % 2] = static_cast<std::int16_t>(x);
    }
  }
}

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
      return static_cast<std::size_t>(padded(k_, 2) * kStrip * 2);
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
  auto* panels = reinterpret_cast<std::int16_t*>(make_panels(std::byte{0}));
  const I16Blocks blocks(k);
  scales_.resize(static_cast<std::size_t>(blocks.count * strips() * kStrip));
  std::vector<float> tile(static_cast<std::size_t>(blocks.size * kStrip));
  for (std::int64_t block = 0; block < blocks.count; ++block) {
    const std::int64_t first = block * blocks.size, depth = blocks.depth(block);
    for (std::int64_t s = 0; s < strips(); ++s) {
      const std::int64_t columns = std::min(kStrip, n - s * kStrip);
      std::fill(tile.begin(), tile.end(), 0.0F);
      for (std::int64_t i = 0; i < depth; ++i)
        for (std::int64_t c = 0; c < columns; ++c)
          tile[static_cast<std::size_t>(i * kStrip + c)] = base::f32_from_bf16(bf16[at(first + i, s * kStrip + c, k, n, stored)]);
      round_tile(depth, tile.data(), panels + (s * padded(k, 2) + first) * kStrip, scales_.data() + (block * strips() + s) * kStrip);
    }
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
    case Narrow::bf16:
      return static_cast<float>(reinterpret_cast<const std::int16_t*>(panel)[i / 2 * 2 * kStrip + c * 2 + i % 2]) *
             scales_[static_cast<std::size_t>((i / I16Blocks(k_).size * strips() + j / kStrip) * kStrip + c)];
    case Narrow::int8:
      return static_cast<float>(std::to_integer<int>(panel[i / 4 * 4 * kStrip + c * 4 + i % 4]) - 128) * scale();
    default:
      return static_cast<float>((std::to_integer<int>(panel[i / 16 * 4 * kStrip + c * 4 + i % 4]) >> (i % 16 / 4 * 2) & 3) - 1) * scale();
  }
}

}  // namespace dormouse::ops
