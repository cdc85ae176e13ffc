// Stages: every op of a measured tape counts once, in the innermost part it was recorded in, forward and backward.
#include "autograd/tape.h"

#include <gtest/gtest.h>

#include <numeric>

#include "autograd/ops.h"
#include "base/clock.h"

namespace dormouse::autograd {
namespace {

constexpr double kWork = 0.01;

void work() {
  const auto start = base::Clock::now();
  while (base::seconds_since(start) < kWork) {
  }
}

TEST(Stage, TimesAreThoseOfTheInnermostStageForwardAndBackward) {
  std::vector<StageSeconds> stages;
  tensor::Parameter parameter;
  parameter.name = "x";
  parameter.value = Tensor::zeros({1}, Dtype::f32);
  const auto start = base::Clock::now();
  {
    Tape tape;
    tape.measure(stages);
    const Var x = tape.parameter(parameter);
    tape.push(work);
    {
      const Stage outer(tape, "outer");
      work();
      {
        const Stage inner(tape, "inner");
        work();
        tape.push([] { work(), work(); });
      }
      tape.push(work);
    }
    {
      const Stage again(tape, "outer");
      work();
    }
    work();
    tape.backward(x);
  }
  const double all = base::seconds_since(start);
  ASSERT_EQ(stages.size(), 3U);
  EXPECT_EQ(stages[0].name, "");
  EXPECT_EQ(stages[1].name, "outer");
  EXPECT_EQ(stages[2].name, "inner");
  // All of the work is in these bounds, so none of it counts elsewhere.
  EXPECT_GE(stages[0].forward, kWork);
  EXPECT_GE(stages[1].forward, 2 * kWork);
  EXPECT_GE(stages[2].forward, kWork);
  EXPECT_GE(stages[0].backward, kWork);
  EXPECT_GE(stages[1].backward, kWork);
  EXPECT_GE(stages[2].backward, 2 * kWork);
  double sum = 0;
  for (const auto& stage : stages) sum += stage.forward + stage.backward;
  EXPECT_LE(sum, all);
}

TEST(Stage, OfATapeThatMeasuresNothingIsNothing) {
  Tape tape;
  const Stage stage(tape, "any");
  tensor::Parameter parameter;
  parameter.value = Tensor::zeros({1}, Dtype::f32);
  int runs = 0;
  const Var x = tape.parameter(parameter);
  tape.push([&] { ++runs; });
  tape.backward(x);
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace dormouse::autograd
