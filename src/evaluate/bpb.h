// Bits per byte of a model on a window of bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "network/dormouse/loop.h"

namespace dormouse::evaluate {

struct BpbOptions {
  std::int64_t row = 0;    // inputs per row; 0 = max_seq_len. Longer than max_seq_len: the state is carried in pieces
  std::int64_t depth = 0;  // 0 = max_iter
  std::int64_t batch = 0;  // rows per pass; 0 = a function of `row` alone. Changes nothing but rounding inside a GEMM
  ops::Compute compute = ops::Compute::f32;
  std::function<bool()> stop;                  // asked between passes; true ends the evaluation early
  std::function<void(double share)> progress;  // told between passes, in (0, 1)
};

struct Bpb {
  bool stopped = false;               // before its end: nothing below counts
  double bpb = 0;                     // final readout, bits per scored byte
  double rec_bpb = 0;                 // mean over the iterations
  std::int64_t bytes = 0;             // size of the window
  std::int64_t scored = 0;            // bytes - 1
  std::vector<double> position_bits;  // [row] sum of bits at each position of a row
  std::vector<std::int64_t> position_count;
};

// The window is cut into rows of `row` inputs that do not overlap: row r reads bytes [r*row, (r+1)*row) and is scored on the byte after
// each, so every byte but the first of the window is scored exactly once. Zero state and fresh keys per row; the last row is short. Sums
// are f64 in row order. Fewer than 2 bytes: base::Error.
Bpb bits_per_byte(const network::ModelConfig& config, network::Parameters& parameters, std::span<const std::uint8_t> window,
                  const BpbOptions& options = {});

struct DepthPoint {
  std::int64_t depth = 0;
  double bpb = 0;
};
// BPB of the same window at depths 1..max_iter, rewound for each. Stopped: empty.
std::vector<DepthPoint> depth_curve(const network::ModelConfig& config, network::Parameters& parameters,
                                    std::span<const std::uint8_t> window, BpbOptions options = {});

struct Bucket {
  std::int64_t begin = 0, end = 0;  // positions of a row
  double bpb = 0;
  std::int64_t bytes = 0;
};
// Doubling buckets [0,16) [16,32) ... up to the row; empty ones are left out.
std::vector<Bucket> position_buckets(const Bpb& result);

// Logits [bytes, 256] of one row, teacher-forced, zero state: logits[p] predicts byte p+1.
tensor::Tensor row_logits(const network::ModelConfig& config, network::Parameters& parameters, std::span<const std::uint8_t> row,
                          const BpbOptions& options = {});

}  // namespace dormouse::evaluate
