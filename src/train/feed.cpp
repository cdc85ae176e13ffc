#include "train/feed.h"

#include <algorithm>

#include "layer/engram.h"
#include "table/keys.h"

namespace dormouse::train {

MicroBatch make_micro_batch(const data::Batch& batch, const network::ModelConfig& model) {
  MicroBatch part;
  const auto t = static_cast<std::size_t>(batch.seq_len);
  const auto rows = static_cast<std::size_t>(batch.rows);
  part.inputs.resize(rows * t);
  part.targets.resize(rows * t);
  if (model.use_engram) part.keys.resize(rows * t * table::kOrders);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto* row = batch.bytes.data() + r * (t + 1);
    std::copy(row, row + t, part.inputs.data() + r * t);
    std::copy(row + 1, row + t + 1, part.targets.data() + r * t);
    if (model.use_engram) {
      table::ngram_keys({row, t}, model.engram_orders, std::span(part.keys).subspan(r * t * table::kOrders, t * table::kOrders));
    }
  }
  return part;
}

StepData make_step_data(const std::vector<data::Batch>& batches, const network::ModelConfig& model) {
  StepData data;
  std::vector<std::uint32_t> keys;
  for (const auto& batch : batches) {
    data.parts.push_back(make_micro_batch(batch, model));
    keys.insert(keys.end(), data.parts.back().keys.begin(), data.parts.back().keys.end());
  }
  if (model.use_engram) data.touched = layer::engram_touched(keys, model.engram_rows);
  return data;
}

Feed::Feed(data::ByteStream& stream, const network::ModelConfig& model, std::int64_t accum)
    : stream_(stream), model_(model), accum_(accum) {
  ahead_ = std::async(std::launch::async, [this] { return read(); });
}

Feed::~Feed() {
  if (ahead_.valid()) ahead_.wait();
}

StepData Feed::next() {
  StepData data = ahead_.get();
  ahead_ = std::async(std::launch::async, [this] { return read(); });
  return data;
}

StepData Feed::read() {
  std::vector<data::Batch> batches;
  for (std::int64_t k = 0; k < accum_; ++k) batches.push_back(stream_.next());
  StepData data = make_step_data(batches, model_);
  data.after = stream_.position();
  return data;
}

}  // namespace dormouse::train
