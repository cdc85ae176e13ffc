// Buffers of one step of decoding: handed out one behind the other, taken back all at once, kept for the next step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace dormouse::layer {

class Scratch {
 public:
  // 64-byte-aligned, contents undefined, valid until restart() or the end of the innermost frame.
  float* take(std::int64_t floats);
  void restart();

  // What is taken in its lifetime goes back at its end.
  class Frame {
   public:
    explicit Frame(Scratch& scratch) : scratch_(scratch), blocks_(scratch.blocks_.size()), used_(scratch.used_) {}
    ~Frame() { scratch_.rewind(blocks_, used_); }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Scratch& scratch_;
    std::size_t blocks_, used_;
  };

 private:
  struct Block {
    std::shared_ptr<std::byte> bytes;
    std::size_t size = 0, before = 0;  // before: bytes in the blocks under it
  };
  void rewind(std::size_t blocks, std::size_t used);
  std::vector<Block> blocks_;
  std::size_t used_ = 0, most_ = 0;  // bytes in use of the last block; the most that was ever in use of all
};

}  // namespace dormouse::layer
