#include "ops/cpu/team.h"

#include <hwy/cache_control.h>
#include <omp.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/clock.h"
#include "base/threads.h"

namespace dormouse::ops::cpu {
namespace {

thread_local Team* team_of_thread = nullptr;
thread_local bool thread_is_alone = false;

// Whether a thread's calls of fit() are better done alone for a while: on a core that others use, every piece waits for its turn. Judged by
// windows of calls, so that a core that was away once is no reason.
struct Patience {
  double seconds = 0, asleep = 0;  // of the shared calls since the last judgement
  double alone = 0;                // seconds still to come
  double times = kLeast;           // what a window took that slept too much, so many times: the seconds alone that follow
  static constexpr double kWindow = 8e-3, kShare = 0.4, kLeast = 2, kMost = 64;

  void add_shared(double taken, double slept) {
    seconds += taken;
    asleep += slept;
    if (seconds < kWindow) return;
    if (asleep < kShare * seconds) {
      times = kLeast;
    } else {
      alone = times * seconds;
      times = std::min(2 * times, kMost);
    }
    seconds = asleep = 0;
  }
};
thread_local Patience patience;

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
    return;
  }
  const auto start = base::Clock::now();
  if (patience.alone > 0) {
    alone(body);
    patience.alone -= base::seconds_since(start);
  } else {
    const double asleep = awake(body);
    patience.add_shared(base::seconds_since(start), asleep);
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
  for (int i = 0; i < spins_; ++i) {
    if (busy_.load(std::memory_order_acquire) == 0) return;
    hwy::Pause();
  }
  const auto start = base::Clock::now();
  for (int busy; (busy = busy_.load(std::memory_order_acquire)) != 0;) busy_.wait(busy, std::memory_order_acquire);
  asleep_ += base::seconds_since(start);
}

void Team::serve(int id) {
  for (int turn = 0;; ++turn) {
    for (int i = 0; i < spins_ && turn_.load(std::memory_order_acquire) == turn; ++i) hwy::Pause();
    turn_.wait(turn, std::memory_order_acquire);
    const Job job = job_;
    if (job != nullptr) job(data_, id, size_);
    if (busy_.fetch_sub(1, std::memory_order_release) == 1) busy_.notify_one();
    if (job == nullptr) return;
  }
}

double Team::awake(const std::function<void()>& body) {
  if (thread_is_alone || omp_in_parallel() != 0 || omp_get_max_threads() == 1) {
    body();
    return 0;
  }
  std::exception_ptr thrown;
  Team team(omp_get_max_threads());
  const unsigned control = base::arithmetic();
  const base::Arithmetic plain(base::kPlainArithmetic);  // as in on_team()
#pragma omp parallel
  {
    const base::Arithmetic same(control);
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
  return team.asleep_;
}

}  // namespace dormouse::ops::cpu
