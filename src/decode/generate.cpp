#include "decode/generate.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "network/dormouse/step.h"

namespace dormouse::decode {

using base::Clock;
using base::seconds_since;

Session::Session(const network::ModelConfig& config, network::Parameters& parameters, std::int64_t depth)
    : config_(config),
      parameters_(parameters),
      depth_(depth),
      state_(network::zero_state(config, 1)),
      key_reader_(config.engram_orders),
      logits_(256, 0.0F) {
  if (depth < 0 || depth > config.max_iter) {
    throw base::UsageError("--depth " + std::to_string(depth) + ": this model has depths 1 to " + std::to_string(config.max_iter));
  }
}

// Keys of `bytes` as the continuation of what was read; only the bytes since the start count, as in a training row.
std::vector<std::uint32_t> Session::keys_for(std::span<const std::uint8_t> bytes) {
  std::vector<std::uint32_t> keys;
  if (config_.use_engram) key_reader_.read(bytes, keys);
  return keys;
}

void Session::read(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), static_cast<std::size_t>(config_.max_seq_len)));
    bytes = bytes.subspan(piece.size());
    const auto keys = keys_for(piece);
    autograd::Tape tape(false, ops::Compute::f32);
    network::LoopInput input;
    input.batch = 1;
    input.time = static_cast<std::int64_t>(piece.size());
    input.bytes = piece;
    input.keys = keys;
    network::LoopOptions options;
    options.depth = depth_;
    options.want_logits = true;
    options.state = &state_;
    const auto output = network::loop(tape, config_, parameters_, input, options);
    const float* last = output.logits.data<float>() + (piece.size() - 1) * 256;
    std::copy(last, last + 256, logits_.begin());
    position_ += input.time;
  }
}

void Session::step(std::uint8_t byte) {
  const std::span<const std::uint8_t> one(&byte, 1);
  const auto keys = keys_for(one);
  network::step(ops::cpu_table(true), config_, parameters_, one, keys, state_, logits_, depth_);
  ++position_;
}

GenerateStats generate(Session& session, Sampler& sampler, std::span<const std::uint8_t> prompt, std::int64_t bytes,
                       const std::function<bool(std::uint8_t)>& put) {
  constexpr std::uint8_t kNewline = '\n';
  if (prompt.empty()) prompt = std::span(&kNewline, 1);
  std::vector<std::uint8_t> text(prompt.begin(), prompt.end());
  GenerateStats stats;
  stats.prompt_bytes = static_cast<std::int64_t>(text.size());
  auto start = Clock::now();
  session.read(text);
  stats.prompt_seconds = seconds_since(start);
  constexpr std::size_t kRemembered = 64;  // for the repeat penalty
  start = Clock::now();
  while (bytes < 0 || stats.written_bytes < bytes) {
    const std::uint8_t byte = sampler.next(session.logits(), text);
    ++stats.written_bytes;
    if (!put(byte)) break;
    text.push_back(byte);
    if (text.size() > 2 * kRemembered) text = std::vector<std::uint8_t>(text.end() - static_cast<std::ptrdiff_t>(kRemembered), text.end());
    session.step(byte);
  }
  stats.write_seconds = seconds_since(start);
  return stats;
}

}  // namespace dormouse::decode
