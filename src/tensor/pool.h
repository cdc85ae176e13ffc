// The caching block pool behind Tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/tensor.h"

namespace dormouse::tensor {

// Blocks come in size classes of eight steps per power of two (at most 1/8 lost to rounding), smallest 64 bytes.
std::size_t block_size(std::size_t bytes);

// A 64-byte-aligned block of at least `bytes`, contents undefined; goes back to the pool with its last owner. Thread-safe.
// base::OutOfMemory when the system has no memory left even after the cached blocks were returned to it.
std::shared_ptr<std::byte> take_block(std::size_t bytes);

}  // namespace dormouse::tensor
