#include "train/memory_reset.h"

namespace dormouse::train {

bool memory_begins_anew(const RunConfig& config, std::uint64_t train_bytes, const data::ByteStream::Position& at, double steps_left) {
  const TrainConfig& train = config.train;
  if (!train.memory_reset || !config.model.use_engram || at.epoch == 0) return false;
  const std::int64_t windows = train.batch * train.accum;  // of a step
  const bool is_first = at.generation == 0 && at.index < static_cast<std::uint64_t>(windows);
  const double epoch = static_cast<double>(train_bytes) / static_cast<double>(windows * train.seq_len);  // steps
  return is_first && epoch >= kShortestEpoch && steps_left >= kLeastFill * epoch;
}

optim::Rates learning_rates(const TrainConfig& train, const optim::Schedule& schedule, std::int64_t step) {
  const double rate = schedule.at(step);
  return {rate, train.memory_reset ? schedule.without_decay(step) : rate};
}

}  // namespace dormouse::train
