// Independent sequences in step form, side by side: what one says depends neither on the others nor on the thread count, to the bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "network/dormouse/loop.h"
#include "table/keys.h"

namespace dormouse::decode {

class Lanes {
 public:
  // config and parameters outlive the lanes.
  Lanes(const network::ModelConfig& config, const network::Parameters& parameters, std::size_t count);

  std::size_t count() const { return readers_.size(); }
  void restart();  // all before their first byte
  // Lane i reads bytes[i]; the lanes from bytes.size() on stand still.
  void step(std::span<const std::uint8_t> bytes);
  // [256], of the byte after the last one read; valid for the lanes of the last step.
  std::span<const float> logits(std::size_t lane) const { return std::span(logits_).subspan(lane * 256, 256); }

 private:
  const network::ModelConfig& config_;
  const network::Parameters& parameters_;
  network::LoopState state_;
  std::vector<table::KeyReader> readers_;
  std::vector<std::uint32_t> keys_;
  std::vector<float> logits_;
};

}  // namespace dormouse::decode
