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

// The corpus of epoch e is its files in the epoch's shuffled order, concatenated: N bytes. With T = seq_len,
//   offset  = hash(seed, e) mod min(T, N - T)
//   windows = floor((N - 1 - offset) / T), at least 1; window i = bytes [offset + i T, offset + (i + 1) T], T + 1 of them: the last byte of
//             a window is the first of the next one, so windows * T labels are trained per epoch and no label twice.
// Bytes before the offset and the fewer than T bytes behind the last window are left out of that epoch; another offset takes them in.
// N = k T + 1 + x with 0 <= x < T gives k windows when offset <= x, else k - 1.
//
// Every window of an epoch is delivered exactly once. A batch that an epoch cannot fill takes its remaining rows from the next epoch.
// N <= ring_bytes: the bytes are read once and kept, one generation per epoch, a seeded permutation of all windows.
// N > ring_bytes: blocks of consecutive windows (1 MiB, or half the ring when that is smaller) in a seeded order; a generation is half a
// ring of blocks, its windows permuted together, while the other half is filled from the files by the thread that makes the batches.
// The order is a pure function of (seed, names and sizes of the corpus, seq_len, ring_bytes); it does not depend on batch.
class ByteStream {
 public:
  struct Position {
    std::uint64_t epoch = 0, generation = 0, index = 0;
    std::string text() const;  // "epoch 3 generation 0 window 118"
    bool operator==(const Position&) const = default;
  };
  // Corpus below batch windows (batch * seq_len + 1 bytes): base::Error naming the sizes and the way out. Opens nothing.
  ByteStream(Corpus corpus, std::int64_t seq_len, std::int64_t batch, std::uint64_t seed, std::uint64_t ring_bytes = 64ULL << 20);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // The next batch. Batches are made ahead by a thread that the first call starts; an error met there (a file gone or shorter than it was)
  // is thrown here once the batches before it are delivered, and again by every call until a seek.
  Batch next();
  Position position() const;               // of the next window to be delivered
  void seek(const Position& position);     // exact; out of range: base::Error
  std::uint64_t windows_in_epoch() const;  // of the epoch of position()
  std::uint64_t epoch() const { return position().epoch; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dormouse::data
