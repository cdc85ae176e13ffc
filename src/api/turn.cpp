#include "api/turn.h"

#include <omp.h>

#include <atomic>
#include <string>

#include "base/error.h"
#include "base/threads.h"
#include "ops/cpu_level.h"

namespace dormouse::api {
namespace {

constexpr int kMostThreads = 4096;

FairLock turn;
std::atomic<int> wanted_threads = 0;

int team_size() {
  static const int available = base::available_threads();
  const int wanted = wanted_threads;
  return wanted > 0 ? wanted : available;
}

}  // namespace

void FairLock::lock() {
  std::unique_lock lock(mutex_);
  const std::uint64_t ticket = next_++;
  changed_.wait(lock, [&] { return serving_ == ticket; });
}

void FairLock::unlock() {
  const std::lock_guard lock(mutex_);
  ++serving_;
  changed_.notify_all();
}

void set_team(int threads) {
  if (threads < 0 || threads > kMostThreads)
    throw base::UsageError(std::to_string(threads) + " threads: give 1 to " + std::to_string(kMostThreads) + ", or 0 for all");
  wanted_threads = threads;
}

Turn::Turn() : lock_(turn, std::defer_lock) {
  try {
    enter();
  } catch (...) {
    leave();
    throw;
  }
}

void Turn::enter() {
  lock_.lock();
  std::fegetenv(&caller_);
  threads_before_ = omp_get_max_threads();
  dynamic_before_ = omp_get_dynamic();
  std::fesetenv(FE_DFL_ENV);
  base::flush_denormals();
  (void)ops::cpu_level();  // chosen in the first turn, of DORMOUSE_CPU when that is set
  omp_set_dynamic(0);
  omp_set_num_threads(team_size());
}

void Turn::leave() noexcept {
  if (!lock_.owns_lock()) return;
  omp_set_num_threads(threads_before_);
  omp_set_dynamic(dynamic_before_);
  std::fesetenv(&caller_);
  lock_.unlock();
}

}  // namespace dormouse::api
