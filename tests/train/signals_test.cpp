#include "train/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/threads.h"

namespace dormouse::train {
namespace {

bool all_blocked() {
  sigset_t mask;
  if (pthread_sigmask(SIG_BLOCK, nullptr, &mask) != 0) return false;
  return sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGHUP) == 1;
}

// A team of its own process: threads that started before watch_signals would not inherit the mask.
void watch_and_compute() {
  std::signal(SIGHUP, SIG_DFL);
  watch_signals();
  base::set_threads(3);
  std::atomic<int> blocked = 0;
#pragma omp parallel num_threads(3)
  blocked += all_blocked() ? 1 : 0;
  bool fed = false;
  std::thread([&] { fed = all_blocked(); }).join();
  std::_Exit(blocked == 3 && fed ? 0 : 1);
}

void stop_twice() {
  watch_signals();
  begin_orderly_stop();
  ::kill(::getpid(), SIGTERM);
  for (int i = 0; i < 1000 && stop_signal() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (stop_signal() != SIGTERM) std::_Exit(1);
  ::kill(::getpid(), SIGINT);
  std::this_thread::sleep_for(std::chrono::seconds(10));
  std::_Exit(2);
}

void stop_before_training() {
  watch_signals();
  ::kill(::getpid(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::seconds(10));
  std::_Exit(2);
}

void hang_up_under_nohup() {
  std::signal(SIGHUP, SIG_IGN);
  watch_signals();
  begin_orderly_stop();
  ::kill(::getpid(), SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::_Exit(stop_signal());
}

class SignalsDeathTest : public testing::Test {
 protected:
  SignalsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(SignalsDeathTest, NoThreadThatComputesTakesThem) { EXPECT_EXIT(watch_and_compute(), testing::ExitedWithCode(0), ""); }
TEST_F(SignalsDeathTest, TheSecondOneEndsTheProcess) { EXPECT_EXIT(stop_twice(), testing::ExitedWithCode(128 + SIGINT), ""); }
TEST_F(SignalsDeathTest, BeforeTrainingTheFirstOneEndsTheProcess) {
  EXPECT_EXIT(stop_before_training(), testing::ExitedWithCode(128 + SIGTERM), "");
}
TEST_F(SignalsDeathTest, UnderNohupTheHangUpIsIgnored) { EXPECT_EXIT(hang_up_under_nohup(), testing::ExitedWithCode(0), ""); }

}  // namespace
}  // namespace dormouse::train
