#include "ops/cpu/parallel.h"

#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>

namespace dormouse::ops::cpu {
namespace {

constexpr std::align_val_t kAlignment{64};

struct AlignedDelete {
  void operator()(void* data) const { ::operator delete(data, kAlignment); }
};

struct Buffer {
  std::unique_ptr<void, AlignedDelete> data;
  std::size_t size = 0;
};

}  // namespace

void* scratch_bytes(Slot slot, std::size_t bytes) {
  static thread_local std::array<Buffer, static_cast<std::size_t>(Slot::count)> buffers;
  Buffer& buffer = buffers[static_cast<std::size_t>(slot)];
  if (buffer.size < bytes || buffer.data == nullptr) {
    const std::size_t size = std::max<std::size_t>(bytes + bytes / 4, 4096);
    buffer.data.reset();
    buffer.size = 0;
    buffer.data.reset(::operator new(size, kAlignment));
    buffer.size = size;
  }
  return buffer.data.get();
}

void split(std::int64_t n, std::int64_t elements, const std::function<void(std::int64_t begin, std::int64_t end)>& body) {
  std::exception_ptr error;
  std::mutex mutex;
  for_ranges(n, 1, elements, [&](std::int64_t begin, std::int64_t end) {
    try {
      body(begin, end);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (error == nullptr) error = std::current_exception();
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
}

Partials::Partials(const RowBlocks& blocks, std::int64_t width)
    : blocks_(blocks.count), stride_(round_up(std::max<std::int64_t>(width, 1), 16)) {
  data_ = scratch(Slot::partials, blocks_ * stride_);
  std::memset(data_, 0, static_cast<std::size_t>(blocks_ * stride_) * sizeof(float));
}

void Partials::add_to(std::int64_t offset, std::int64_t count, float* out) const {
  if (out == nullptr || blocks_ == 0) return;
  for_ranges(count, 64, count * blocks_, [&](std::int64_t begin, std::int64_t end) {
    float* __restrict sum = row(0) + offset;
    for (std::int64_t block = 1; block < blocks_; ++block) {
      const float* __restrict part = row(block) + offset;
      for (std::int64_t j = begin; j < end; ++j) sum[j] += part[j];
    }
    for (std::int64_t j = begin; j < end; ++j) out[j] += sum[j];
  });
}

}  // namespace dormouse::ops::cpu
