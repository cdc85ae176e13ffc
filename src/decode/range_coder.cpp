#include "decode/range_coder.h"

#include <utility>

namespace dormouse::decode {
namespace {

constexpr std::uint64_t kTop = std::uint64_t{1} << 56;  // the range stays at or above it: 24 bits beyond kCodeTotal

}  // namespace

void RangeEncoder::add(std::uint64_t amount) {
  low_ += amount;
  if (low_ >= amount) return;
  // The whole message stays below 1, so some byte before is not 255.
  auto byte = out_.rbegin();
  while (*byte == 0xff) *byte++ = 0;
  ++*byte;
}

void RangeEncoder::put(std::uint64_t begin, std::uint64_t count) {
  const std::uint64_t unit = range_ >> 32;
  add(unit * begin);
  range_ = unit * count;
  for (; range_ < kTop; range_ <<= 8) {
    out_.push_back(static_cast<std::uint8_t>(low_ >> 56));
    low_ <<= 8;
  }
}

std::vector<std::uint8_t> RangeEncoder::finish() {
  add(kTop - 1);  // the next multiple of kTop lies inside the range, and one byte says it
  out_.push_back(static_cast<std::uint8_t>(low_ >> 56));
  while (!out_.empty() && out_.back() == 0) out_.pop_back();
  return std::exchange(out_, {});
}

RangeDecoder::RangeDecoder(std::span<const std::uint8_t> message) : message_(message) {
  for (int i = 0; i < 8; ++i) shift();
}

void RangeDecoder::shift() {
  value_ = value_ << 8 | (taken_ < message_.size() ? message_[taken_] : 0U);
  ++taken_;
}

void RangeDecoder::take(std::uint64_t begin, std::uint64_t count) {
  const std::uint64_t unit = range_ >> 32;
  value_ -= unit * begin;
  range_ = unit * count;
  for (; range_ < kTop; range_ <<= 8) shift();
}

}  // namespace dormouse::decode
