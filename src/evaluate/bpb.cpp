#include "evaluate/bpb.h"

#include <algorithm>
#include <cstring>
#include <numbers>

#include "base/error.h"
#include "table/keys.h"

namespace dormouse::evaluate {
namespace {

using network::LoopInput;
using network::LoopOptions;
using network::LoopOutput;
using network::ModelConfig;
using network::Parameters;

// About 2,048 positions per pass, whatever the batch of the run is.
std::int64_t rows_per_pass(std::int64_t row) { return std::clamp<std::int64_t>(2048 / std::max<std::int64_t>(row, 1), 1, 64); }

// Calls visit(first position, pieces' length, output) for `rows` rows of `length` inputs in pieces of at most max_seq_len,
// the state carried from piece to piece. text[r*length ..] are the inputs of row r; the byte after each is its label.
template <class Visit>
void forward_rows(const ModelConfig& config, Parameters& parameters, std::span<const std::uint8_t> text, std::int64_t rows,
                  std::int64_t length, bool scored, const BpbOptions& options, Visit&& visit) {
  const auto orders = std::span<const std::int64_t>(config.engram_orders);
  std::vector<std::uint32_t> keys;
  if (config.use_engram) {
    keys.resize(static_cast<std::size_t>(rows * length * table::kOrders));
    for (std::int64_t r = 0; r < rows; ++r) {
      table::ngram_keys(text.subspan(static_cast<std::size_t>(r * length), static_cast<std::size_t>(length)), orders,
                        std::span(keys).subspan(static_cast<std::size_t>(r * length * table::kOrders),
                                                static_cast<std::size_t>(length * table::kOrders)));
    }
  }
  const bool pieces = length > config.max_seq_len;
  network::LoopState state;
  if (pieces) state = network::zero_state(config, rows);
  for (std::int64_t begin = 0; begin < length; begin += config.max_seq_len) {
    const std::int64_t time = std::min(config.max_seq_len, length - begin);
    std::vector<std::uint8_t> bytes, targets;
    std::vector<std::uint32_t> piece_keys;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto* first = text.data() + r * length + begin;
      bytes.insert(bytes.end(), first, first + time);
      if (scored) targets.insert(targets.end(), first + 1, first + 1 + time);
      if (config.use_engram) {
        const auto* key = keys.data() + (r * length + begin) * table::kOrders;
        piece_keys.insert(piece_keys.end(), key, key + time * table::kOrders);
      }
    }
    autograd::Tape tape(false, options.compute);
    LoopInput input;
    input.batch = rows;
    input.time = time;
    input.bytes = bytes;
    input.keys = piece_keys;
    input.targets = targets;
    LoopOptions loop_options;
    loop_options.depth = options.depth;
    loop_options.want_logits = !scored;
    loop_options.state = pieces ? &state : nullptr;
    const LoopOutput output = network::loop(tape, config, parameters, input, loop_options);
    visit(begin, time, output);
  }
}

}  // namespace

Bpb bits_per_byte(const ModelConfig& config, Parameters& parameters, std::span<const std::uint8_t> window, const BpbOptions& options) {
  if (window.size() < 2)
    throw base::Error("a window of " + std::to_string(window.size()) + " bytes has nothing to score; give at least 2 bytes");
  const std::int64_t row = options.row > 0 ? options.row : config.max_seq_len;
  const std::int64_t batch = options.batch > 0 ? options.batch : rows_per_pass(row);
  const auto labels = static_cast<std::int64_t>(window.size()) - 1;
  Bpb result;
  result.bytes = labels + 1;
  result.scored = labels;
  result.position_bits.assign(static_cast<std::size_t>(std::min(row, labels)), 0.0);
  result.position_count.assign(result.position_bits.size(), 0);

  double nats = 0, rec_nats = 0;
  for (std::int64_t begin = 0; begin < labels;) {
    const std::int64_t full = (labels - begin) / row;
    const std::int64_t rows = full > 0 ? std::min(batch, full) : 1;
    const std::int64_t length = full > 0 ? row : labels - begin;
    std::vector<double> row_nats(static_cast<std::size_t>(rows), 0.0), row_rec(row_nats);
    forward_rows(config, parameters, window.subspan(static_cast<std::size_t>(begin)), rows, length, true, options,
                 [&](std::int64_t first, std::int64_t time, const LoopOutput& output) {
                   const float* fin = output.final_nats.value().data<float>();
                   for (std::int64_t r = 0; r < rows; ++r) {
                     const auto at = static_cast<std::size_t>(r);
                     for (std::int64_t t = 0; t < time; ++t) {
                       const double value = static_cast<double>(fin[r * time + t]);
                       const auto position = static_cast<std::size_t>(first + t);
                       row_nats[at] += value;
                       result.position_bits[position] += value / std::numbers::ln2;
                       ++result.position_count[position];
                     }
                     for (const auto& iteration : output.nats) {
                       const float* x = iteration.value().data<float>() + r * time;
                       double sum = 0;
                       for (std::int64_t t = 0; t < time; ++t) sum += static_cast<double>(x[t]);
                       row_rec[at] += sum / static_cast<double>(output.nats.size());
                     }
                   }
                 });
    for (std::size_t r = 0; r < row_nats.size(); ++r) {
      nats += row_nats[r];
      rec_nats += row_rec[r];
    }
    begin += rows * length;
    if (begin < labels && options.progress) options.progress(static_cast<double>(begin) / static_cast<double>(labels));
    if (begin < labels && options.stop && options.stop()) {
      result.stopped = true;
      return result;
    }
  }
  result.bpb = nats / static_cast<double>(labels) / std::numbers::ln2;
  result.rec_bpb = rec_nats / static_cast<double>(labels) / std::numbers::ln2;
  return result;
}

std::vector<DepthPoint> depth_curve(const ModelConfig& config, Parameters& parameters, std::span<const std::uint8_t> window,
                                    BpbOptions options) {
  std::vector<DepthPoint> curve;
  const auto whole = options.progress;
  for (std::int64_t depth = 1; depth <= config.max_iter; ++depth) {
    options.depth = depth;
    if (whole)
      options.progress = [&](double share) { whole((static_cast<double>(depth - 1) + share) / static_cast<double>(config.max_iter)); };
    const Bpb point = bits_per_byte(config, parameters, window, options);
    if (point.stopped) return {};
    curve.push_back({depth, point.bpb});
  }
  return curve;
}

std::vector<Bucket> position_buckets(const Bpb& result) {
  std::vector<Bucket> buckets;
  const auto length = static_cast<std::int64_t>(result.position_bits.size());
  for (std::int64_t begin = 0, end = 16; begin < length; begin = end, end *= 2) {
    Bucket bucket{begin, std::min(end, length), 0, 0};
    for (std::int64_t p = bucket.begin; p < bucket.end; ++p) {
      bucket.bpb += result.position_bits[static_cast<std::size_t>(p)];
      bucket.bytes += result.position_count[static_cast<std::size_t>(p)];
    }
    if (bucket.bytes == 0) continue;
    bucket.bpb /= static_cast<double>(bucket.bytes);
    buckets.push_back(bucket);
  }
  return buckets;
}

tensor::Tensor row_logits(const ModelConfig& config, Parameters& parameters, std::span<const std::uint8_t> row, const BpbOptions& options) {
  const auto length = static_cast<std::int64_t>(row.size());
  if (length == 0) throw base::Error("an empty window has no logits; give at least 1 byte");
  tensor::Tensor logits = tensor::Tensor::empty({length, 256}, tensor::Dtype::f32);
  forward_rows(config, parameters, row, 1, length, false, options, [&](std::int64_t first, std::int64_t time, const LoopOutput& output) {
    std::memcpy(logits.data<float>() + first * 256, output.logits.data<float>(), static_cast<std::size_t>(time * 256) * sizeof(float));
  });
  return logits;
}

}  // namespace dormouse::evaluate
