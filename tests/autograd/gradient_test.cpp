// Every differentiable op against five-point central differences in f64, with each input wanting a gradient or not.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "autograd/ops.h"
#include "base/random.h"

namespace dormouse::autograd {
namespace {

using Inputs = std::vector<Var>;
using Op = std::function<Var(Tape&, const Inputs&)>;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  Tensor normal(const Shape& shape, double deviation = 1.0) {
    return fill(shape, [&] { return deviation * random_.normal(); });
  }
  Tensor uniform(const Shape& shape, double low, double high) {
    return fill(shape, [&] { return low + (high - low) * random_.uniform(); });
  }

 private:
  template <class F>
  Tensor fill(const Shape& shape, F next) {
    Tensor t = Tensor::empty(shape, Dtype::f64);
    for (std::int64_t i = 0; i < t.size(); ++i) t.data<double>()[i] = next();
    return t;
  }
  base::SplitMix64 random_;
};

// sum_i projection_i y_i: a loss whose gradient is the projection.
Tensor projection_of(const Tensor& y) { return Draw(99).normal(y.shape()); }

double projected(const Tensor& y) {
  const Tensor p = projection_of(y);
  double sum = 0;
  for (std::int64_t i = 0; i < y.size(); ++i) sum += p.at(i) * y.at(i);
  return sum;
}

Var project(Tape& tape, const Var& y) {
  Var loss(Tensor::from<double>({1}, std::vector<double>{projected(y.value())}), y.wants_grad());
  tape.push(loss, [y](const Tensor& dloss) {
    const Tensor p = projection_of(y.value());
    for (std::int64_t i = 0; i < p.size(); ++i) y.grad().data<double>()[i] += p.at(i) * dloss.at(0);
  });
  return loss;
}

double loss_without_tape(const std::vector<Tensor>& inputs, const Op& op) {
  Tape tape(false);
  Inputs vars;
  for (const Tensor& t : inputs) vars.push_back(tape.constant(t));
  return projected(op(tape, vars).value());
}

std::vector<double> numeric_gradient(const std::vector<Tensor>& inputs, std::size_t which, const Op& op) {
  constexpr double kStep = 1e-3;
  std::vector<double> gradient;
  double* x = inputs[which].data<double>();
  for (std::int64_t i = 0; i < inputs[which].size(); ++i) {
    const double at = x[i];
    const auto loss = [&](double steps) {
      x[i] = at + steps * kStep;
      return loss_without_tape(inputs, op);
    };
    gradient.push_back((loss(-2) - 8 * loss(-1) + 8 * loss(1) - loss(2)) / (12 * kStep));
    x[i] = at;
  }
  return gradient;
}

// Tolerance 1e-6 of the element plus the gradient's rms: the five-point formula is good to about 1e-10 here.
void check(const std::vector<Tensor>& inputs, const Op& op) {
  std::vector<std::vector<double>> expected;
  for (std::size_t i = 0; i < inputs.size(); ++i) expected.push_back(numeric_gradient(inputs, i, op));
  // Who wants a gradient: everybody, or one input alone (the others' pointers are null). Gradients start empty or at 0.5.
  for (std::size_t alone = 0; alone <= inputs.size(); ++alone) {
    for (const bool filled : {false, true}) {
      Tape tape;
      Inputs vars;
      for (std::size_t i = 0; i < inputs.size(); ++i) vars.emplace_back(inputs[i], alone == inputs.size() || alone == i);
      if (filled) {
        for (const Var& v : vars) {
          if (v.wants_grad()) std::fill_n(v.grad().data<double>(), v.value().size(), 0.5);
        }
      }
      tape.backward(project(tape, op(tape, vars)));
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (!vars[i].wants_grad()) continue;
        double squares = 0;
        for (const double g : expected[i]) squares += g * g;
        const double rms = std::sqrt(squares / static_cast<double>(expected[i].size()));
        for (std::size_t j = 0; j < expected[i].size(); ++j) {
          const double got = vars[i].grad().at(static_cast<std::int64_t>(j)) - (filled ? 0.5 : 0.0);
          ASSERT_NEAR(got, expected[i][j], 1e-6 * (std::abs(expected[i][j]) + rms) + 1e-9)
              << "input " << i << " element " << j << (filled ? ", gradient filled before" : "") << ", alone " << alone;
        }
      }
    }
  }
}

TEST(Gradient, MatmulMatchesDifferences) {
  Draw draw(1);
  check({draw.normal({3, 5}), draw.normal({5, 7})}, [](Tape& t, const Inputs& x) { return matmul(t, x[0], x[1]); });
}

TEST(Gradient, MatmulTransposedMatchesDifferences) {
  Draw draw(2);
  check({draw.normal({3, 5}), draw.normal({7, 5})}, [](Tape& t, const Inputs& x) { return matmul_transposed(t, x[0], x[1]); });
}

TEST(Gradient, MatmulReadsAColumnSliceOfAWiderMatrix) {
  Draw draw(3);
  check({draw.normal({3, 5})}, [](Tape& t, const Inputs& x) {
    const Var slice = t.constant(Draw(4).normal({3, 9}).columns(2, 5));
    return matmul_transposed(t, x[0], slice);
  });
}

TEST(Gradient, MatmulTransposedSumMatchesDifferences) {
  Draw draw(5);
  check({draw.normal({3, 5}), draw.normal({3, 2}), draw.normal({7, 5}), draw.normal({7, 2})},
        [](Tape& t, const Inputs& x) { return matmul_transposed_sum(t, std::span(x).first(2), std::span(x).last(2)); });
}

TEST(Gradient, MatmulAddMatchesDifferences) {
  Draw draw(6);
  check({draw.normal({3, 7}), draw.normal({3, 5}), draw.normal({5, 7})},
        [](Tape& t, const Inputs& x) { return matmul_add(t, x[0], x[1], x[2]); });
}

TEST(Gradient, TwoBlocksOfOneWeightShareItsGradient) {
  Draw draw(7);
  check({draw.normal({3, 4}), draw.normal({3, 5}), draw.normal({9, 7})}, [](Tape& t, const Inputs& x) {
    const Var top = matmul(t, x[0], slice_rows(t, x[2], 0, 4));
    return matmul_add(t, top, x[1], slice_rows(t, x[2], 4, 5));
  });
}

TEST(Gradient, SlicesOfASliceAndOfAComputedValueReachTheWhole) {
  Draw draw(8);
  check({draw.normal({6, 7}), draw.normal({3, 7})}, [](Tape& t, const Inputs& x) {
    const Var y = silu(t, x[0]);
    return add_row(t, x[1], slice_rows(t, slice_rows(t, y, 1, 4), 2, 1));
  });
}

TEST(Gradient, GatherAddsUpRepeatedRows) {
  Draw draw(9);
  check({draw.normal({5, 7})}, [](Tape& t, const Inputs& x) {
    return gather(t, Tensor::from<std::uint32_t>({4}, std::vector<std::uint32_t>{3, 0, 3, 4}), x[0]);
  });
}

TEST(Gradient, AddRowMatchesDifferences) {
  Draw draw(10);
  const Op op = [](Tape& t, const Inputs& x) { return add_row(t, x[0], x[1]); };
  check({draw.normal({5, 7}), draw.normal({7})}, op);
  check({draw.normal({5, 7}), draw.normal({1, 7})}, op);
}

TEST(Gradient, RmsNormMatchesDifferences) {
  Draw draw(11);
  check({draw.normal({5, 7}), draw.normal({7})}, [](Tape& t, const Inputs& x) { return rms_norm(t, x[0], x[1], 1e-3); });
}

TEST(Gradient, SiluAndSigmoidMatchDifferences) {
  Draw draw(12);
  check({draw.normal({3, 7}, 3.0)}, [](Tape& t, const Inputs& x) { return silu(t, x[0]); });
  check({draw.normal({3, 7}, 3.0)}, [](Tape& t, const Inputs& x) { return sigmoid(t, x[0]); });
}

TEST(Gradient, GatesMatchDifferencesOnBothSidesOfTheClip) {
  Draw draw(13);
  for (const bool smooth : {false, true}) {
    for (const std::int64_t experts : {1, 3}) {
      const Tensor c = draw.normal({5, 8});
      c.data<double>()[1] = 1.0;       // sigma > lam_max
      c.data<double>()[8 + 1] = -1.0;  // below
      check({c}, [=](Tape& t, const Inputs& x) { return gates(t, x[0], experts, 0.5, smooth); });
    }
  }
}

TEST(Gradient, SiluHeadNormMatchesDifferences) {
  Draw draw(14);
  check({draw.normal({5, 6})}, [](Tape& t, const Inputs& x) { return silu_head_norm(t, x[0], 3, 1e-6); });
}

TEST(Gradient, DecayMatchesDifferencesAndStopsAtTheClamp) {
  Draw draw(15);
  const Tensor a_log = Tensor::from<double>({3}, std::vector<double>{-0.5, 0.3, -10.5});
  check({draw.normal({5, 6}), a_log, draw.normal({6})}, [](Tape& t, const Inputs& x) { return decay(t, x[0], x[1], x[2], -5.0); });
}

TEST(Gradient, KdaMatchesDifferencesOnARaggedLengthWithAndWithoutAState) {
  Draw draw(16);
  const ops::Kda shape{.batch = 2, .time = 19, .heads = 2, .head_dim = 3};
  const std::vector<Tensor> inputs{draw.normal({38, 6}), draw.normal({38, 6}, 0.5), draw.normal({38, 6}), draw.uniform({38, 6}, -2, -0.01),
                                   draw.uniform({38, 2}, 0.1, 0.9)};
  for (const Tensor& state : {Tensor(), draw.normal({2, 2, 3, 3})}) {
    check(inputs, [=](Tape& t, const Inputs& x) { return kda(t, shape, x[0], x[1], x[2], x[3], x[4], state, nullptr); });
  }
}

TEST(Gradient, GatedHeadNormMatchesDifferences) {
  Draw draw(17);
  check({draw.normal({5, 6}), draw.normal({5, 6}), draw.normal({3})},
        [](Tape& t, const Inputs& x) { return gated_head_norm(t, x[0], x[1], x[2], 3, 1e-5); });
}

TEST(Gradient, EngramReadMatchesDifferencesAwayFromTheRootsFloor) {
  Draw draw(18);
  check({draw.normal({5, 7}), draw.normal({5, 7}), draw.normal({5, 7})},
        [](Tape& t, const Inputs& x) { return engram_read(t, x[0], x[1], x[2], 1e-5); });
}

TEST(Gradient, ResidualMatchesDifferencesWithEveryArmOnOrOff) {
  for (const bool attention : {true, false}) {
    for (const bool memory : {true, false}) {
      Draw draw(19);
      std::vector<Tensor> inputs{draw.normal({5, 7}), draw.normal({1}), draw.uniform({5, 6}, 0, 1), draw.normal({5, 7}),
                                 draw.normal({5, 7})};
      if (attention) inputs.push_back(draw.normal({5, 7}));
      if (memory) inputs.push_back(draw.normal({5, 7}));
      check(inputs, [=](Tape& t, const Inputs& x) {
        return residual(t, x[0], x[1], x[2], attention ? x[5] : Var(), memory ? x.back() : Var(), x[3], x[4]);
      });
    }
  }
}

TEST(Gradient, ScaleColumnsMatchesDifferencesWithAndWithoutGates) {
  Draw draw(20);
  check({draw.normal({5, 7}), draw.normal({7})}, [](Tape& t, const Inputs& x) { return scale_columns(t, x[0], x[1]); });
  check({draw.normal({5, 7}), draw.normal({7}), draw.uniform({5, 6}, 0, 1)},
        [](Tape& t, const Inputs& x) { return scale_columns(t, x[0], x[1], x[2], 1); });
}

TEST(Gradient, CrossEntropyMatchesDifferences) {
  Draw draw(21);
  check({draw.normal({5, 7}), draw.normal({11, 7})}, [](Tape& t, const Inputs& x) {
    return cross_entropy(t, x[0], x[1], Tensor::from<std::uint8_t>({5}, std::vector<std::uint8_t>{0, 10, 3, 3, 7}));
  });
}

TEST(Gradient, MeansMatchDifferences) {
  Draw draw(22);
  check({draw.normal({3, 5}), draw.normal({3, 5}), draw.normal({3, 5})}, [](Tape& t, const Inputs& x) { return mean_of(t, x); });
  check({draw.normal({3}), draw.normal({5}), draw.normal({1})}, [](Tape& t, const Inputs& x) {
    return weighted_mean(t, x, std::vector<double>{0.25, -2.0, 0.5});
  });
}

TEST(Gradient, OneValueWithManyConsumersCollectsTheSum) {
  Draw draw(23);
  check({draw.normal({5, 5}), draw.normal({5})}, [](Tape& t, const Inputs& x) {
    const Var y = rms_norm(t, x[0], x[1], 1e-3);
    const Var square = matmul(t, y, y);
    const Var gated = engram_read(t, y, square, y, 1e-5);
    return mean_of(t, std::vector<Var>{gated, matmul_add(t, y, square, x[0]), y});
  });
}

}  // namespace
}  // namespace dormouse::autograd
