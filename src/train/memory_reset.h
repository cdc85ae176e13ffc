// The memory begins anew with every pass over the text. A row that has met a text before knows its next bytes, and a network that reads
// such rows learns to trust them more than a new text deserves (docs/decisions/0013-memory-reset.md). Rows that begin anew are filled while
// the text passes, so what is read has always been learned from other places.
#pragma once

#include <cstdint>

#include "data/byte_stream.h"
#include "optim/schedule.h"
#include "train/config.h"

namespace dormouse::train {

inline constexpr double kShortestEpoch = 100;  // steps: in fewer a row would hardly move
inline constexpr double kLeastFill = 0.9;      // of an epoch that the run must have left
// Whether the rows begin anew before the step whose first window is `at`, with steps_left steps to come, this one included: it is the first
// step of an epoch but the first, and neither limit forbids it.
bool memory_begins_anew(const RunConfig& config, std::uint64_t train_bytes, const data::ByteStream::Position& at, double steps_left);

// Of a step: rows that begin anew must be learned to the end of the run as fast as before, so theirs does not decay.
optim::Rates learning_rates(const TrainConfig& train, const optim::Schedule& schedule, std::int64_t step);

}  // namespace dormouse::train
