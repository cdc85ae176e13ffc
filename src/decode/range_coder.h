// Arithmetic coding: a message becomes one number of [0, 1), byte by byte from the top. Low and range have 64 bits, a symbol owns a part of
// [0, 2^32), and a carry runs back into the bytes already written, which is why a message stays in memory until it is finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dormouse::decode {

inline constexpr std::uint64_t kCodeTotal = std::uint64_t{1} << 32;

class RangeEncoder {
 public:
  // The symbol that owns [begin, begin + count) of [0, kCodeTotal), count >= 1.
  void put(std::uint64_t begin, std::uint64_t count);
  // The message, without the zero bytes at its end: a reader goes on with zeros.
  std::vector<std::uint8_t> finish();

 private:
  void add(std::uint64_t amount);
  std::vector<std::uint8_t> out_;
  std::uint64_t low_ = 0, range_ = ~std::uint64_t{0};
};

class RangeDecoder {
 public:
  explicit RangeDecoder(std::span<const std::uint8_t> message);  // outlives the decoder
  // The point whose owner is the next symbol; kCodeTotal or more: no encoder wrote this message.
  std::uint64_t point() const { return value_ / (range_ >> 32); }
  void take(std::uint64_t begin, std::uint64_t count);
  // After the last symbol: whether the message has the length an encoder would have given it.
  bool complete() const { return message_.size() <= taken_ - 7 && (message_.empty() || message_.back() != 0); }

 private:
  void shift();
  std::span<const std::uint8_t> message_;
  std::size_t taken_ = 0;                                // bytes shifted in, the zeros after the end among them
  std::uint64_t value_ = 0, range_ = ~std::uint64_t{0};  // value - low of the encoder
};

}  // namespace dormouse::decode
