// Every allocation of the library through operator new is made to fail once: the call says so, and the next one works.
#include <cstdlib>
#include <new>

#include "support.h"

namespace {

thread_local long allocations_left = -1;  // before one fails; -1: none does

void* allocate(std::size_t size, std::size_t alignment) {
  if (allocations_left >= 0 && allocations_left-- == 0) return nullptr;
  if (size == 0) size = 1;
  return alignment == 0 ? std::malloc(size) : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const out = allocate(size, alignment);
  if (out == nullptr) throw std::bad_alloc();
  return out;
}

}  // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) { return allocate_or_throw(size, static_cast<std::size_t>(alignment)); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
// GCC takes the new of a class for another one than that above.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

namespace dormouse::tests {
namespace {

// work() with its n-th allocation failing, n = 1, 2, ... until it succeeds. How many failures were reported as such: the stream that reads
// a number of a header says only that it cannot.
template <class Work>
long fail_each(const Work& work) {
  for (long n = 0, reported = 0;; ++n) {
    allocations_left = n;
    const int status = work();
    const bool failed = allocations_left < 0;
    allocations_left = -1;
    if (!failed) {
      EXPECT_EQ(status, DORMOUSE_OK) << dormouse_last_error();
      EXPECT_GE(10 * reported, 9 * n);
      return reported;
    }
    if (status == DORMOUSE_OK || status == DORMOUSE_MEMORY) {  // some failures are taken: a cached block is freed instead
      ++reported;
    } else {
      EXPECT_NE(std::string(dormouse_last_error()).find("parsing"), std::string::npos) << dormouse_last_error();
    }
    EXPECT_EQ(std::string(dormouse_last_error()).empty(), status == DORMOUSE_OK);
    if (::testing::Test::HasFailure()) return reported;
  }
}

TEST(Memory, EveryAllocationThatFailsIsAnError) {
  ASSERT_EQ(dormouse_set_threads(1), DORMOUSE_OK);
  const std::string path = (kExports / "int8.dmexp").string();
  const auto spare = open(path);
  const std::string wanted = generated(session_of(spare), "abc", 10, options_with());

  dormouse_model* model = nullptr;
  EXPECT_GT(fail_each([&] {
              dormouse_close(model);
              return dormouse_open(path.c_str(), &model);
            }),
            100);
  const ModelHandle owner(model, dormouse_close);
  dormouse_session* session = nullptr;
  EXPECT_GT(fail_each([&] {
              dormouse_session_free(session);
              return dormouse_session_new(model, 0, &session);
            }),
            5);
  const SessionHandle held(session, dormouse_session_free);

  std::string out;
  out.reserve(1000);
  const auto sink_into = [](void* user, const unsigned char* bytes, size_t count) {
    static_cast<std::string*>(user)->append(reinterpret_cast<const char*>(bytes), count);
    return 0;
  };
  const auto options = options_with();
  fail_each([&] {
    const int restarted = dormouse_session_restart(session);
    if (restarted != DORMOUSE_OK) return restarted;
    out.clear();
    return dormouse_generate(session, &options, bytes_of("abc"), 3, 10, sink_into, &out, nullptr);
  });
  EXPECT_EQ(out, wanted);

  const auto empty = [](void*, unsigned char*, size_t, size_t*) { return 0; };
  EXPECT_GT(fail_each([&] {
              out.clear();
              return dormouse_compress(model, 0, empty, nullptr, sink_into, &out, nullptr);
            }),
            1);  // once there is a compressor, little is allocated
  EXPECT_EQ(dormouse_set_threads(0), DORMOUSE_OK);
}

}  // namespace
}  // namespace dormouse::tests
