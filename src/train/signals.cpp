#include "train/signals.h"

#include <unistd.h>
#include <csignal>
#include <initializer_list>

namespace dormouse::train {
namespace {

volatile std::sig_atomic_t received = 0;

extern "C" void on_stop_signal(int signal) {
  if (received != 0) _exit(128 + signal);
  received = signal;
}

}  // namespace

void install_signal_handlers() {
  received = 0;
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

int stop_signal() { return received; }

}  // namespace dormouse::train
