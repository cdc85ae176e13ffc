#include "train/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <initializer_list>
#include <string_view>
#include <thread>

#include "base/file.h"

namespace dormouse::train {
namespace {

std::atomic<bool> orderly = false;
std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // on_broken_pipe uses it

void watch(sigset_t signals) {
  while (true) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) continue;
    int none = 0;
    if (orderly && received.compare_exchange_strong(none, signal)) {
      constexpr std::string_view kHeard = "\nstopping after this step; once more stops at once\n";
      if (isatty(STDERR_FILENO) != 0) [[maybe_unused]]
        const auto shown = write(STDERR_FILENO, kHeard.data(), kHeard.size());
      continue;
    }
    base::remove_temporaries();
    _exit(128 + signal);
  }
}

// The reader of stdout or stderr went away: no reason to lose the steps since the last save. Comes from write(2), never from a kernel.
extern "C" void on_broken_pipe(int signal) {
  if (!orderly) _exit(128 + signal);
  int none = 0;
  received.compare_exchange_strong(none, signal);
}

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void watch_signals() {
  static bool watching = false;
  if (watching) return;
  watching = true;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (signal == SIGHUP && is_ignored(signal)) continue;
    sigaddset(&signals, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);  // sigwait of an ignored signal is not portable
  if (!is_ignored(SIGPIPE)) {
    struct sigaction action = {};
    action.sa_handler = on_broken_pipe;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGPIPE, &action, nullptr);
  }
  std::thread(watch, signals).detach();
}

void begin_orderly_stop() {
  received = 0;
  orderly = true;
}

void end_orderly_stop() { orderly = false; }

int stop_signal() { return received; }

}  // namespace dormouse::train
