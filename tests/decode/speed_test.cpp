#include "decode/speed.h"

#include <gtest/gtest.h>

#include "base/threads.h"
#include "support.h"

namespace dormouse::decode {
namespace {

// Threads that wait for each other would make the limit a hundred times lower, and a step of one thread "beyond" it.
TEST(Speed, TheLimitIsNotThatOfThreadsThatWaitForAProcessor) {
  auto model = testing::tiny_model(3, 64);
  const auto weights = testing::weights_of(model);
  base::set_threads(1);
  const double one = reading_seconds(weights);
  base::set_threads(32);
  const double many = reading_seconds(weights);
  base::set_threads(1);
  EXPECT_LT(many, 5 * one);
}

}  // namespace
}  // namespace dormouse::decode
