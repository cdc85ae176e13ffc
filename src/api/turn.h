// The right to compute, which one call of the process has at a time.
#pragma once

#include <cfenv>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace dormouse::api {

// First come, first served: a thread that generates gives way between two bytes to one that waits.
class FairLock {
 public:
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0, serving_ = 0;
};

// 0: base::available_threads(). base::UsageError out of range.
void set_team(int threads);

// While it lasts, this thread computes as the program does (its OpenMP workers follow it: ops/cpu/parallel.h): default rounding and masks,
// denormals are zero, a team of the size asked for. Afterwards floating-point environment and OpenMP settings are the caller's again.
class Turn {
 public:
  Turn();
  ~Turn() { leave(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // f(), as the caller's code, which others may compute beside. When it throws, the turn is over.
  template <class F>
  auto outside(const F& f) {
    leave();
    const auto result = f();
    enter();
    return result;
  }

 private:
  void enter();
  void leave() noexcept;
  std::unique_lock<FairLock> lock_;
  std::fenv_t caller_ = {};
  int threads_before_ = 0, dynamic_before_ = 0;
};

}  // namespace dormouse::api
