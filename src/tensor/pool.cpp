#include "tensor/pool.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/error.h"

namespace dormouse::tensor {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::align_val_t kAlign{kAlignment};

class Pool {
 public:
  Pool() {
#if defined(__GLIBC__)
    // Large blocks are mapped one by one, always. glibc by itself raises this limit when a mapped block is freed (mallopt(3)); large
    // blocks then lie in the heap, and each evaluation between two training steps fragments it a little more.
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
  }

  std::byte* take(std::size_t size) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = free_.find(size);
      if (found != free_.end() && !found->second.empty()) {
        std::byte* block = found->second.back();
        found->second.pop_back();
        use_.cached_bytes -= size;
        count_live(size);
        return block;
      }
    }
    std::byte* block = allocate(size);
    if (block == nullptr) {
      trim();
      block = allocate(size);
    }
    const std::lock_guard lock(mutex_);
    if (block == nullptr) {
      throw base::OutOfMemory("out of memory: no block of " + std::to_string(size) + " bytes beside the " +
                              std::to_string(use_.live_bytes) + " bytes of live tensors; use a smaller batch or sequence");
    }
    count_live(size);
    return block;
  }

  // Runs in destructors: a list that cannot grow gives the block back to the system instead.
  void give(std::byte* block, std::size_t size) noexcept {
    const std::lock_guard lock(mutex_);
    use_.live_bytes -= size;
    try {
      free_[size].push_back(block);
      use_.cached_bytes += size;
    } catch (const std::bad_alloc&) {
      ::operator delete(block, kAlign);
    }
  }

  void trim() {
    const std::lock_guard lock(mutex_);
    for (auto& [size, blocks] : free_) {
      for (std::byte* block : blocks) ::operator delete(block, kAlign);
    }
    free_.clear();
    use_.cached_bytes = 0;
  }

  PoolUse use() {
    const std::lock_guard lock(mutex_);
    return use_;
  }

 private:
  static std::byte* allocate(std::size_t size) { return static_cast<std::byte*>(::operator new(size, kAlign, std::nothrow)); }

  void count_live(std::size_t size) {
    use_.live_bytes += size;
    use_.peak_bytes = std::max(use_.peak_bytes, use_.live_bytes);
  }

  std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<std::byte*>> free_;
  PoolUse use_;
};

// Never destroyed: tensors in static storage may outlive any destructor order.
Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

}  // namespace

std::size_t block_size(std::size_t bytes) {
  if (bytes <= kAlignment) return kAlignment;
  const std::size_t step = std::max(kAlignment, std::bit_floor(bytes - 1) / 8);
  return (bytes + step - 1) / step * step;
}

std::shared_ptr<std::byte> take_block(std::size_t bytes) {
  const std::size_t size = block_size(bytes);
  return {pool().take(size), [size](std::byte* block) { pool().give(block, size); }};
}

PoolUse pool_use() { return pool().use(); }

void trim_pool() { pool().trim(); }

}  // namespace dormouse::tensor
