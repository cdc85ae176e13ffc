// Generation: the prompt in chunks, then one byte at a time with one state per iteration; cost per byte is constant.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "decode/sampler.h"
#include "network/dormouse/loop.h"
#include "table/keys.h"

namespace dormouse::decode {

// One sequence being read and written.
class Session {
 public:
  // model config and parameters outlive the session. depth 0 = max_iter.
  Session(const network::ModelConfig& config, network::Parameters& parameters, std::int64_t depth = 0);

  // Reads bytes in chunk form, pieces of at most max_seq_len. The logits of the last position stay available.
  void read(std::span<const std::uint8_t> bytes);
  // Reads one byte in step form.
  void step(std::uint8_t byte);
  std::span<const float> logits() const { return logits_; }  // [256], of the byte after the last one read
  std::int64_t position() const { return position_; }        // bytes read

 private:
  std::vector<std::uint32_t> keys_for(std::span<const std::uint8_t> bytes);
  const network::ModelConfig& config_;
  network::Parameters& parameters_;
  std::int64_t depth_;
  network::LoopState state_;
  table::KeyReader key_reader_;
  std::vector<float> logits_;
  std::int64_t position_ = 0;
};

struct GenerateStats {
  std::int64_t prompt_bytes = 0, written_bytes = 0;
  double prompt_seconds = 0, write_seconds = 0;
};

// Reads the prompt (an empty one becomes a newline: something must be read before anything can be said) and writes up to `bytes` bytes
// (-1: until `put` says stop). put(byte) returns false to stop.
GenerateStats generate(Session& session, Sampler& sampler, std::span<const std::uint8_t> prompt, std::int64_t bytes,
                       const std::function<bool(std::uint8_t)>& put);

}  // namespace dormouse::decode
