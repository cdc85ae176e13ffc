// The bytes of the next step, read and hashed while the current one computes.
#pragma once

#include <cstdint>
#include <future>
#include <vector>

#include "data/byte_stream.h"
#include "network/dormouse/config.h"

namespace dormouse::train {

struct MicroBatch {
  std::vector<std::uint8_t> inputs, targets;  // [b*t]
  std::vector<std::uint32_t> keys;            // [b*t*3], empty when the memory is off
};

struct StepData {
  std::vector<MicroBatch> parts;       // one per accumulation
  std::vector<std::uint32_t> touched;  // memory rows of all parts, sorted, each once
  data::ByteStream::Position after;    // of the first window this step does not use
};

class Feed {
 public:
  // stream and model outlive the feed.
  Feed(data::ByteStream& stream, const network::ModelConfig& model, std::int64_t accum);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;
  StepData next();

 private:
  StepData read();
  data::ByteStream& stream_;
  const network::ModelConfig& model_;
  std::int64_t accum_;
  std::future<StepData> ahead_;
};

// Inputs, labels and keys of one batch.
MicroBatch make_micro_batch(const data::Batch& batch, const network::ModelConfig& model);
// A step of these batches, one after the other; `after` is left to the caller.
StepData make_step_data(const std::vector<data::Batch>& batches, const network::ModelConfig& model);

}  // namespace dormouse::train
