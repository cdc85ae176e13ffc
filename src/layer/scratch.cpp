#include "layer/scratch.h"

#include <algorithm>

#include "tensor/pool.h"

namespace dormouse::layer {

float* Scratch::take(std::int64_t floats) {
  const std::size_t bytes = (static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
  if (blocks_.empty() || used_ + bytes > blocks_.back().size) {
    const std::size_t before = blocks_.empty() ? 0 : blocks_.back().before + used_;
    const std::size_t size = std::max({bytes, before, std::size_t{1} << 16});
    blocks_.push_back({tensor::take_block(size), size, before});
    used_ = 0;
  }
  auto* out = reinterpret_cast<float*>(blocks_.back().bytes.get() + used_);
  used_ += bytes;
  most_ = std::max(most_, blocks_.back().before + used_);
  return out;
}

void Scratch::rewind(std::size_t blocks, std::size_t used) {
  blocks_.resize(blocks);
  used_ = used;
}

void Scratch::restart() {
  if (blocks_.size() > 1 || (!blocks_.empty() && blocks_[0].size < most_)) {
    blocks_.clear();
    blocks_.push_back({tensor::take_block(most_), most_, 0});
  }
  used_ = 0;
}

}  // namespace dormouse::layer
