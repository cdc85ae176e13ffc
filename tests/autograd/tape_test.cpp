#include "autograd/tape.h"

#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "base/error.h"
#include "base/random.h"

namespace dormouse::autograd {
namespace {

Tensor normal(const Shape& shape, std::uint64_t seed, Dtype dtype = Dtype::f32) {
  base::SplitMix64 random(seed);
  Tensor t = Tensor::empty(shape, Dtype::f64);
  for (std::int64_t i = 0; i < t.size(); ++i) t.data<double>()[i] = random.normal();
  return t.to(dtype);
}

Parameter parameter(const Shape& shape, std::uint64_t seed) {
  Parameter p;
  p.name = "weight";
  p.value = normal(shape, seed);
  return p;
}

Var mean(Tape& tape, const Var& x) { return weighted_mean(tape, std::vector<Var>{x}, std::vector<double>{1.0}); }

void one_pass(Parameter& w, const Tensor& x, double scale) {
  Tape tape;
  tape.use(ops::reference_table<float>());
  tape.backward(mean(tape, silu(tape, matmul(tape, tape.constant(x), tape.parameter(w)))), scale);
}

TEST(Tape, ParameterGradientsAddUpOverMicroBatches) {
  Parameter w = parameter({5, 7}, 1);
  const Tensor x = normal({3, 5}, 2);
  EXPECT_FALSE(w.grad.defined());
  one_pass(w, x, 1.0);
  const Tensor first = w.grad.clone();
  one_pass(w, x, 0.5);
  for (std::int64_t i = 0; i < first.size(); ++i) EXPECT_NEAR(w.grad.at(i), 1.5 * first.at(i), 1e-6);
  const std::byte* storage = w.grad.bytes();
  w.zero_grad();
  one_pass(w, x, 1.0);
  EXPECT_EQ(w.grad.bytes(), storage);
  for (std::int64_t i = 0; i < first.size(); ++i) EXPECT_EQ(w.grad.at(i), first.at(i));
}

TEST(Tape, TheSameParameterIsTheSameVarWithinATape) {
  Parameter w = parameter({4}, 3);
  Tape tape;
  const Var a = tape.parameter(w);
  const Var b = tape.parameter(w);
  EXPECT_EQ(&a.grad(), &b.grad());
  EXPECT_EQ(a.grad().bytes(), w.grad.bytes());
}

// A segment whose values h, y are both used outside, and h inside as well: silu(x W) = h, h W = y.
struct Segment {
  Parameter w = parameter({6, 6}, 5);
  Parameter scale = parameter({6, 6}, 6);
  int runs = 0;

  void pass(bool again, bool record = true) {
    w.zero_grad();
    scale.zero_grad();
    Tape tape(record);
    const Var x = matmul(tape, tape.constant(normal({9, 6}, 7)), tape.parameter(scale));
    const auto run = [this, &tape, x] {
      ++runs;
      const Var h = silu(tape, matmul(tape, x, tape.parameter(w)));
      return std::vector<Var>{h, matmul(tape, h, tape.parameter(w)), Var()};
    };
    const auto made = again ? tape.recompute(run) : run();
    EXPECT_FALSE(made[2].defined());
    const Var loss = mean(tape, mean_of(tape, std::vector<Var>{matmul(tape, made[0], tape.parameter(w)), made[1], x}));
    if (record) tape.backward(loss);
  }
};

TEST(Tape, ARecomputedSegmentRunsTwiceAndGivesTheSameBits) {
  Segment kept, recomputed;
  kept.pass(false);
  recomputed.pass(true);
  EXPECT_EQ(recomputed.runs, 2);
  for (std::int64_t i = 0; i < kept.w.grad.size(); ++i) {
    EXPECT_EQ(kept.w.grad.at(i), recomputed.w.grad.at(i));
    EXPECT_EQ(kept.scale.grad.at(i), recomputed.scale.grad.at(i));
    EXPECT_NE(kept.scale.grad.at(i), 0);
  }
  Segment unrecorded;
  unrecorded.pass(true, false);
  EXPECT_EQ(unrecorded.runs, 1);
}

TEST(Tape, AFailingSegmentLeavesATapeThatRecordsAndOneThatFailsInBackwardLeavesItEmpty) {
  Parameter w = parameter({4, 4}, 8);
  Tape tape;
  const Var x = tape.constant(normal({3, 4}, 9));
  EXPECT_THROW(tape.recompute([]() -> std::vector<Var> { throw base::Error("no"); }), base::Error);
  EXPECT_TRUE(tape.recording());
  int runs = 0;
  const auto made = tape.recompute([&] {
    const Var y = silu(tape, matmul(tape, x, tape.parameter(w)));
    if (++runs == 2) throw base::Error("no");
    return std::vector<Var>{y};
  });
  EXPECT_THROW(tape.backward(mean(tape, made[0])), base::Error);
  w.zero_grad();
  tape.backward(mean(tape, matmul(tape, x, tape.parameter(w))));
  EXPECT_EQ(runs, 2);
}

TEST(Tape, WithoutRecordingNothingWantsAGradientAndNothingIsKept) {
  Parameter w = parameter({64, 64}, 4);
  Tape tape(false);
  tape.use(ops::reference_table<float>());
  const std::uint64_t live = tensor::pool_use().live_bytes;
  {
    const Var y = silu(tape, matmul(tape, tape.constant(normal({8, 64}, 5)), tape.parameter(w)));
    EXPECT_FALSE(y.wants_grad());
    EXPECT_THROW(tape.backward(mean(tape, y)), base::Error);
  }
  EXPECT_EQ(tensor::pool_use().live_bytes, live);
  EXPECT_FALSE(w.grad.defined());
}

TEST(Tape, BackwardFreesWhatEachOpSavedAsItGoes) {
  constexpr int kDepth = 16;
  constexpr std::int64_t kSize = 1 << 16;
  const std::uint64_t tensor_bytes = kSize * sizeof(float);
  Tape tape;
  tape.use(ops::reference_table<float>());
  const std::uint64_t before = tensor::pool_use().live_bytes;
  std::uint64_t at_the_end = 0;
  const Var x(normal({kSize}, 6), true);
  tape.push([&] { at_the_end = tensor::pool_use().live_bytes; });
  Var loss;
  {
    Var y = x;
    for (int i = 0; i < kDepth; ++i) y = silu(tape, y);
    loss = mean(tape, y);
  }
  EXPECT_GE(tensor::pool_use().live_bytes, before + kDepth * tensor_bytes);
  tape.backward(loss);
  EXPECT_LE(at_the_end, before + 3 * tensor_bytes);
  EXPECT_TRUE(x.has_grad());
}

TEST(Tape, AnOpDoesNotKeepAnOutputNobodySaved) {
  constexpr std::int64_t kSize = 1 << 16;
  Tape tape;
  tape.use(ops::reference_table<float>());
  const Var row(normal({1, kSize}, 7), true);
  const std::uint64_t before = tensor::pool_use().live_bytes;
  Var y = row;
  for (int i = 0; i < 8; ++i) y = add_row(tape, y, row);
  EXPECT_LE(tensor::pool_use().live_bytes, before + 2 * kSize * sizeof(float));
}

TEST(Tape, OpsTheLossDoesNotReachAreSkipped) {
  Parameter used = parameter({3}, 8);
  Parameter unused = parameter({3}, 9);
  Tape tape;
  tape.use(ops::reference_table<float>());
  const Var aside = silu(tape, tape.parameter(unused));
  tape.backward(mean(tape, silu(tape, tape.parameter(used))));
  EXPECT_TRUE(used.grad.defined());
  EXPECT_FALSE(unused.grad.defined());
  EXPECT_FALSE(aside.has_grad());
}

TEST(Tape, OnlyTheOpsThatAllowItRoundTheirOperandsToBf16) {
  const Var x(normal({3, 5}, 10), true);
  const Var w(normal({5, 7}, 11), true);
  Tape exact;
  Tape rounded(true, ops::Compute::bf16);
  for (Tape* tape : {&exact, &rounded}) tape->use(ops::reference_table<float>());
  const Tensor want = matmul(exact, x, w).value();
  const Tensor kept = matmul(rounded, x, w, Precision::f32).value();
  const Tensor narrow = matmul(rounded, x, w).value();
  double largest = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(kept.at(i), want.at(i));
    EXPECT_NEAR(narrow.at(i), want.at(i), 0.1);
    largest = std::max(largest, std::abs(narrow.at(i) - want.at(i)));
  }
  EXPECT_GT(largest, 1e-4);
}

TEST(Tape, F32AndF64GiveTheSameGradients) {
  Tensor grads[2];
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    Tape tape;
    tape.use(ops::reference_table<float>());
    const Var w(normal({5, 7}, 12, dtype), true);
    const Var y = rms_norm(tape, matmul(tape, tape.constant(normal({3, 5}, 13, dtype)), w), tape.constant(normal({7}, 14, dtype)), 1e-3);
    tape.backward(mean(tape, y));
    grads[dtype == Dtype::f64] = w.grad();
  }
  for (std::int64_t i = 0; i < grads[0].size(); ++i) EXPECT_NEAR(grads[0].at(i), grads[1].at(i), 1e-6);
}

TEST(Tape, KdaInTwoPiecesWithTheStateCarriedEqualsOnePiece) {
  const Tensor q = normal({20, 6}, 15, Dtype::f64), k = normal({20, 6}, 16, Dtype::f64), v = normal({20, 6}, 17, Dtype::f64);
  const Tensor beta = Tensor::from<double>({20, 2}, std::vector<double>(40, 0.3));
  const Tensor g = Tensor::from<double>({20, 6}, std::vector<double>(120, -0.4));
  Tape tape(false);
  Tensor state;
  const auto run = [&](std::int64_t begin, std::int64_t count, const Tensor& start) {
    const auto part = [&](const Tensor& t) { return tape.constant(t.rows_slice(begin, count)); };
    const ops::Kda shape{.batch = 1, .time = count, .heads = 2, .head_dim = 3};
    return kda(tape, shape, part(q), part(k), part(v), part(g), part(beta), start, &state).value();
  };
  const Tensor whole = run(0, 20, Tensor());
  const Tensor whole_state = state;
  const Tensor head = run(0, 7, Tensor());
  const Tensor tail = run(7, 13, state.clone());
  for (std::int64_t i = 0; i < 42; ++i) EXPECT_NEAR(head.at(i), whole.at(i), 1e-12);
  for (std::int64_t i = 0; i < 78; ++i) EXPECT_NEAR(tail.at(i), whole.at(42 + i), 1e-12);
  for (std::int64_t i = 0; i < state.size(); ++i) EXPECT_NEAR(state.at(i), whole_state.at(i), 1e-12);
}

TEST(Tape, ShapesThatDoNotFitAreRefusedByName) {
  Tape tape;
  tape.use(ops::reference_table<float>());
  const Var x(normal({3, 5}, 18), true);
  const Var w(normal({4, 7}, 19), true);
  try {
    matmul(tape, x, w);
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_STREQ(error.what(), "matmul: the shapes do not fit: [3,5]f32 [4,7]f32");
  }
  EXPECT_THROW(rms_norm(tape, x, w, 1e-3), base::Error);
  EXPECT_THROW(silu(tape, Var()), base::Error);
  EXPECT_THROW(gather(tape, Tensor::from<std::uint32_t>({1}, std::vector<std::uint32_t>{4}), w), base::Error);
  EXPECT_THROW(cross_entropy(tape, w, w, Tensor::from<std::uint8_t>({4}, std::vector<std::uint8_t>{0, 1, 2, 4})), base::Error);
  EXPECT_THROW(tape.backward(x), base::Error);
}

}  // namespace
}  // namespace dormouse::autograd
