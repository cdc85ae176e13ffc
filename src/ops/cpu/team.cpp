#include "ops/cpu/team.h"

#include <hwy/cache_control.h>
#include <omp.h>

#include <exception>
#include <utility>

namespace dormouse::ops::cpu {
namespace {

thread_local Team* team_of_thread = nullptr;
thread_local bool thread_is_alone = false;

// Until `value` is no longer `old`: `spins` looks, then asleep, for the core may be shared.
void wait_while(const std::atomic<int>& value, int old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    hwy::Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

Team::Team(int size) : size_(size), spins_(size > omp_get_num_procs() ? 0 : 2000) {}

Team* Team::current() { return thread_is_alone ? nullptr : team_of_thread; }
bool Team::is_alone() { return thread_is_alone; }

void Team::alone(const std::function<void()>& body) {
  struct Restore {
    bool before = std::exchange(thread_is_alone, true);
    ~Restore() { thread_is_alone = before; }
  } restore;
  body();
}

void Team::fit(std::int64_t products, const std::function<void()>& body) {
  constexpr std::int64_t kWorthSharing = 3'000'000;  // 0.1 ms of one thread
  if (products < kWorthSharing) {
    alone(body);
  } else {
    awake(body);
  }
}

void Team::run(Job job, const void* data) {
  job_ = job;
  data_ = data;
  busy_.store(size_ - 1, std::memory_order_relaxed);
  turn_.fetch_add(1, std::memory_order_release);
  turn_.notify_all();
  if (job != nullptr) {
    team_of_thread = nullptr;  // a kernel inside a piece stays on its thread
    job(data, 0, size_);
    team_of_thread = this;
  }
  for (int busy; (busy = busy_.load(std::memory_order_acquire)) != 0;) wait_while(busy_, busy, spins_);
}

void Team::serve(int id) {
  for (int turn = 0;; ++turn) {
    wait_while(turn_, turn, spins_);
    const Job job = job_;
    if (job != nullptr) job(data_, id, size_);
    if (busy_.fetch_sub(1, std::memory_order_release) == 1) busy_.notify_one();
    if (job == nullptr) return;
  }
}

void Team::awake(const std::function<void()>& body) {
  if (thread_is_alone || omp_in_parallel() != 0 || omp_get_max_threads() == 1) {
    body();
    return;
  }
  std::exception_ptr thrown;
  Team team(omp_get_max_threads());
#pragma omp parallel
  {
    if (omp_get_thread_num() == 0) {
      team.size_ = omp_get_num_threads();
      team_of_thread = &team;
      try {
        body();
      } catch (...) {
        thrown = std::current_exception();
      }
      team.run(nullptr, nullptr);
      team_of_thread = nullptr;
    } else {
      team.serve(omp_get_thread_num());
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace dormouse::ops::cpu
