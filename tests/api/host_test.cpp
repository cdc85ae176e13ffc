#include <fenv.h>
#include <omp.h>

#include <atomic>
#include <csignal>
#include <limits>
#include <locale>
#include <thread>

#include "support.h"

namespace dormouse::tests {
namespace {

TEST(Host, ThreadsAtOnceGetTheirOwnBytes) {
  const auto model = open(kExports / "int8.dmexp");
  const std::vector<std::string> prompts = {"one", "another", "a third", "x"};
  std::vector<std::string> wanted, got(prompts.size());
  for (const auto& prompt : prompts) wanted.push_back(generated(session_of(model), prompt, 120, options_with()));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    threads.emplace_back([&, i] {
      got[i] = generated(session_of(open(kExports / "int8.dmexp")), prompts[i], 60, options_with());
      got[i] = generated(session_of(model), prompts[i], 120, options_with());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(got, wanted);
}

TEST(Host, ThreadsTakeTurns) {
  const auto model = open(kExports / "int8.dmexp");
  std::atomic<int> first = 0;
  std::atomic<bool> done = false;
  std::thread endless([&] {
    Take take = [&](const std::string&) { return ++first > 0 && done ? 1 : 0; };
    EXPECT_EQ(dormouse_generate(session_of(model).get(), nullptr, nullptr, 0, -1, sink, &take, nullptr), DORMOUSE_STOPPED);
  });
  while (first == 0) std::this_thread::yield();
  EXPECT_EQ(generated(session_of(model), "x", 50, options_with()).size(), 50U);  // without a fair lock: never, or by luck
  done = true;
  endless.join();
}

TEST(Host, ErrorsBelongToTheirThread) {
  dormouse_model* model = nullptr;
  ASSERT_EQ(dormouse_open("nowhere", &model), DORMOUSE_REFUSED);
  std::thread([] { EXPECT_STREQ(dormouse_last_error(), ""); }).join();
  EXPECT_NE(std::string(dormouse_last_error()).find("nowhere"), std::string::npos);
}

TEST(Host, ACallbackMayUseAllButItsSession) {
  const auto model = open(kExports / "f32.dmexp");
  dormouse_session* session = session_of(model).release();
  const auto options = options_with(0);
  const std::string wanted = generated(session_of(model), "abc", 4, options);
  std::string out;
  Take take = [&](const std::string& bytes) {
    out += bytes;
    if (out.size() == 1) {
      float logits[256];
      EXPECT_EQ(dormouse_logits(session, logits), DORMOUSE_BUSY);
      EXPECT_EQ(dormouse_read(session, bytes_of("x"), 1), DORMOUSE_BUSY);
      EXPECT_EQ(dormouse_session_restart(session), DORMOUSE_BUSY);
      expect_sentence("busy");
      EXPECT_EQ(generated(session_of(model), "abc", 4, options), wanted);
    }
    if (out.size() == 3) dormouse_session_free(session);
    return 0;
  };
  EXPECT_EQ(dormouse_generate(session, &options, bytes_of("abc"), 3, 4, sink, &take, nullptr), DORMOUSE_OK);
  EXPECT_STREQ(dormouse_last_error(), "");
  EXPECT_EQ(out, wanted);
}

TEST(Host, AnExceptionOfACallbackBecomesAnError) {
  const auto model = open(kExports / "f32.dmexp");
  const auto session = session_of(model);
  Take take = [](const std::string&) -> int { throw 7; };
  EXPECT_EQ(dormouse_generate(session.get(), nullptr, nullptr, 0, 4, sink, &take, nullptr), DORMOUSE_REFUSED);
  expect_sentence("thrown");
  EXPECT_EQ(generated(session_of(model), "abc", 4, options_with()).size(), 4U);  // the turn was given back
}

bool denormals_are_numbers() {
  volatile float x = std::numeric_limits<float>::min();
  x = x / 4;
  return x > 0;
}

TEST(Host, KeepsItsFloatingPointEnvironment) {
  const auto model = open(kExports / "bf16.dmexp");
  const std::string wanted = generated(session_of(model), "abc", 60, options_with());
  ASSERT_TRUE(denormals_are_numbers());
  std::fenv_t before;
  fegetenv(&before);
  fesetround(FE_TOWARDZERO);
#ifdef __GLIBC__
  feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
  const int traps = fegetexcept();
#endif
  const auto unchanged = [&] {
    EXPECT_EQ(fegetround(), FE_TOWARDZERO);
    EXPECT_TRUE(denormals_are_numbers());
#ifdef __GLIBC__
    EXPECT_EQ(fegetexcept(), traps);
#endif
  };
  std::string out;
  Take take = [&](const std::string& bytes) {
    unchanged();
    out += bytes;
    return 0;
  };
  const auto options = options_with();
  EXPECT_EQ(dormouse_generate(session_of(model).get(), &options, bytes_of("abc"), 3, 60, sink, &take, nullptr), DORMOUSE_OK);
  unchanged();
  dormouse_model* none = nullptr;
  EXPECT_EQ(dormouse_open("nowhere", &none), DORMOUSE_REFUSED);
  unchanged();
  fesetenv(&before);
  EXPECT_EQ(out, wanted);
}

TEST(Host, KeepsItsOpenMp) {
  ASSERT_EQ(dormouse_set_threads(2), DORMOUSE_OK);
  omp_set_num_threads(2);
  const auto count = [] {
    int denormal = 0;
#pragma omp parallel reduction(+ : denormal)
    denormal += denormals_are_numbers() ? 1 : 0;
    return denormal;
  };
  ASSERT_EQ(count(), 2);
  const auto model = open(kExports / "bf16.dmexp");
  const std::string wanted = generated(session_of(model), "abc", 20, options_with());
  EXPECT_EQ(count(), 2);
  ASSERT_EQ(dormouse_set_threads(3), DORMOUSE_OK);
  omp_set_num_threads(1);
  EXPECT_EQ(generated(session_of(model), "abc", 20, options_with()), wanted);
  EXPECT_EQ(omp_get_max_threads(), 1);
  omp_set_num_threads(2);
  std::vector<std::string> inside(2);
#pragma omp parallel num_threads(2)
  inside[static_cast<std::size_t>(omp_get_thread_num())] = generated(session_of(model), "abc", 20, options_with());
  EXPECT_EQ(inside, std::vector<std::string>(2, wanted));
  EXPECT_EQ(dormouse_set_threads(0), DORMOUSE_OK);
}

struct German : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Host, KeepsItsSignalsAndItsLocale) {
  std::vector<struct sigaction> before;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    before.push_back(action);
  }
  const auto path = kExports / "bf16.dmexp";
  const std::string wanted = generated(session_of(open(path)), "abc", 20, options_with());
  const std::locale classic = std::locale::global(std::locale(std::locale::classic(), new German));
  EXPECT_EQ(generated(session_of(open(path)), "abc", 20, options_with()), wanted);
  EXPECT_EQ(std::use_facet<std::numpunct<char>>(std::locale()).decimal_point(), ',');
  std::locale::global(classic);
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    EXPECT_EQ(action.sa_handler, before[static_cast<std::size_t>(signal - 1)].sa_handler) << signal;
  }
}

}  // namespace
}  // namespace dormouse::tests
