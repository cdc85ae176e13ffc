// ByteStream: windows of a corpus in a seeded order, for ever, refilled in the background.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/corpus.h"

namespace dormouse::data {

// batch rows of seq_len + 1 bytes: inputs are [0, seq_len), labels [1, seq_len].
struct Batch {
  std::int64_t rows = 0, seq_len = 0;
  std::vector<std::uint8_t> bytes;  // rows * (seq_len + 1)
};

// Epoch e cuts the concatenated corpus (files in the epoch's shuffled order) into windows of seq_len+1 bytes that overlap by one, from
// offset hash(seed, e) mod seq_len, and visits them in a seeded permutation: every window once. The last partial batch continues into the
// next epoch. Corpora above ring_bytes go through a ring of shuffled 1 MiB blocks refilled by a thread and permuted inside the ring. The
// order is a pure function of (seed, corpus, seq_len, ring_bytes).
class ByteStream {
 public:
  struct Position {
    std::uint64_t epoch = 0, generation = 0, index = 0;
    std::string text() const;  // "epoch 3 generation 0 window 118"
    bool operator==(const Position&) const = default;
  };
  // Corpus below batch windows (batch * seq_len + 1 bytes): base::Error naming the sizes and the way out.
  ByteStream(Corpus corpus, std::int64_t seq_len, std::int64_t batch, std::uint64_t seed, std::uint64_t ring_bytes = 64ULL << 20);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // The next batch; read errors: base::Error naming the file.
  Batch next();
  Position position() const;            // of the next window to be delivered
  void seek(const Position& position);  // exact; out of range: base::Error
  std::uint64_t windows_in_epoch() const;
  std::uint64_t epoch() const { return position().epoch; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dormouse::data
