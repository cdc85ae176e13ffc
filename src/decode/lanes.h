// Independent sequences side by side: what one says depends neither on the others nor on the thread count nor on how its text is cut into
// calls, to the bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "layer/scratch.h"
#include "network/dormouse/step.h"
#include "table/keys.h"

namespace dormouse::decode {

class Lanes {
 public:
  // The weights outlive the lanes. depth 0 = max_iter; base::UsageError when the model has no such depth.
  Lanes(const network::Weights& weights, std::size_t count, std::int64_t depth = 0);

  std::size_t count() const { return readers_.size(); }
  void restart();                  // all before their first byte
  void restart(std::size_t lane);  // this one
  // Lane i reads bytes[i]; the lanes from bytes.size() on stand still.
  void step(std::span<const std::uint8_t> bytes);
  // One lane reads a text. `each`, when given, gets the logits after every byte, [bytes.size(),256], in pieces.
  void read(std::size_t lane, std::span<const std::uint8_t> bytes);
  template <class Each>
  void read(std::size_t lane, std::span<const std::uint8_t> bytes, const Each& each);
  // [256], of the byte after the last one read.
  std::span<const float> logits(std::size_t lane) const { return std::span(logits_).subspan(lane * 256, 256); }
  std::int64_t position(std::size_t lane) const { return positions_[lane]; }  // bytes read

 private:
  static constexpr std::size_t kPiece = 64;  // positions at once: their buffers stay in the second-level cache
  void run(std::size_t first, std::size_t batch, std::span<const std::uint8_t> bytes, std::span<float> logits);
  const network::Weights& weights_;
  std::int64_t products_ = 0;  // of one byte of one text
  std::int64_t depth_;
  network::LoopState state_;
  layer::Scratch scratch_;
  std::vector<table::KeyReader> readers_;
  std::vector<std::uint32_t> keys_;
  std::vector<float> logits_, piece_logits_;
  std::vector<std::int64_t> positions_;
};

template <class Each>
void Lanes::read(std::size_t lane, std::span<const std::uint8_t> bytes, const Each& each) {
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    piece_logits_.resize(kPiece * 256);
    const auto logits = std::span(piece_logits_).first(piece.size() * 256);
    run(lane, 1, piece, logits);
    each(std::span<const float>(logits));
    std::copy(logits.end() - 256, logits.end(), logits_.begin() + static_cast<std::ptrdiff_t>(lane * 256));
  }
}

}  // namespace dormouse::decode
