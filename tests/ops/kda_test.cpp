// The gated delta recurrence: published vector, chunk form against recurrence, finite differences, CPU kernels against f64.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ops/cpu/kda.h"
#include "ops/cpu_level.h"
#include "ops/reference/kda.h"
#include "ops/reference/kda_chunk.h"

namespace dormouse::ops {
namespace {

// splitmix64, uniform in [0,1)
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  double uniform() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()); }

 private:
  std::uint64_t state_;
};

template <class T>
struct Inputs {
  Kda p;
  std::vector<T> q, k, v, g, beta, state0, d_o, dstate;

  std::size_t units() const { return static_cast<std::size_t>(p.batch * p.heads); }
  std::size_t size() const { return units() * static_cast<std::size_t>(p.time * p.head_dim); }
  std::size_t states() const { return units() * static_cast<std::size_t>(p.head_dim * p.head_dim); }
  std::size_t chunks(std::size_t rows = kKdaChunk) const { return (static_cast<std::size_t>(p.time) + rows - 1) / rows; }
};

template <class To, class From>
Inputs<To> convert(const Inputs<From>& x) {
  const auto cast = [](const std::vector<From>& y) { return std::vector<To>(y.begin(), y.end()); };
  return {x.p, cast(x.q), cast(x.k), cast(x.v), cast(x.g), cast(x.beta), cast(x.state0), cast(x.d_o), cast(x.dstate)};
}

// q, k unit vectors; g in [-strongest, 0), many of them weak; beta in (0,1). Values are exact in f32.
Inputs<double> random_inputs(const Kda& p, double strongest, std::uint64_t seed = 1) {
  Draw draw(seed);
  Inputs<double> x;
  x.p = p;
  const auto fill = [&](std::size_t n) {
    std::vector<double> y(n);
    for (double& e : y) e = static_cast<float>(draw.normal());
    return y;
  };
  x.q = fill(x.size());
  x.k = fill(x.size());
  x.v = fill(x.size());
  x.d_o = fill(x.size());
  x.state0 = fill(x.states());
  x.dstate = fill(x.states());
  x.g.resize(x.size());
  x.beta.resize(x.size() / static_cast<std::size_t>(p.head_dim));
  for (double& e : x.g) e = static_cast<float>(-strongest * std::pow(draw.uniform(), 3));
  for (double& e : x.beta) e = static_cast<float>(draw.uniform());
  const auto hd = static_cast<std::size_t>(p.head_dim);
  for (std::vector<double>* y : {&x.q, &x.k})
    for (std::size_t i = 0; i < y->size(); i += hd) {
      const double norm =
          std::sqrt(std::inner_product(y->begin() + static_cast<std::ptrdiff_t>(i), y->begin() + static_cast<std::ptrdiff_t>(i + hd),
                                       y->begin() + static_cast<std::ptrdiff_t>(i), 0.0));
      for (std::size_t d = 0; d < hd; ++d) (*y)[i + d] = static_cast<float>((*y)[i + d] / norm);
    }
  return x;
}

template <class T>
struct Results {
  std::vector<T> o, state, chunk_states, dq, dk, dv, dg, dbeta, dstate0;
  std::vector<std::pair<std::string, const std::vector<T>*>> named() const {
    return {{"o", &o}, {"state", &state}, {"dq", &dq}, {"dk", &dk}, {"dv", &dv}, {"dg", &dg}, {"dbeta", &dbeta}, {"dstate0", &dstate0}};
  }
};

template <class T>
Results<T> sized(const Inputs<T>& x, std::size_t rows = kKdaChunk) {
  Results<T> r;
  r.o.resize(x.size());
  r.state.resize(x.states());
  r.chunk_states.resize(x.states() * x.chunks(rows));
  r.dq = r.dk = r.dv = r.dg = std::vector<T>(x.size());
  r.dbeta.resize(x.beta.size());
  r.dstate0.resize(x.states());
  return r;
}

template <class T>
Results<T> run(const Inputs<T>& x, decltype(OpTable<T>::kda) forward, decltype(OpTable<T>::kda_backward) backward) {
  Results<T> r = sized(x);
  forward(x.p, x.q.data(), x.k.data(), x.v.data(), x.g.data(), x.beta.data(), x.state0.data(), r.o.data(), r.state.data(),
          r.chunk_states.data());
  backward(x.p, x.q.data(), x.k.data(), x.v.data(), x.g.data(), x.beta.data(), r.chunk_states.data(), x.d_o.data(), x.dstate.data(),
           r.dq.data(), r.dk.data(), r.dv.data(), r.dg.data(), r.dbeta.data(), r.dstate0.data());
  return r;
}

template <class T>
Results<T> run_reference(const Inputs<T>& x) {
  return run<T>(x, reference::kda<T>, reference::kda_backward<T>);
}

Results<float> run_cpu(const Inputs<float>& x) { return run<float>(x, cpu::kda, cpu::kda_backward); }

Results<double> run_chunk(const Inputs<double>& x, std::size_t rows) {
  Results<double> r = sized(x, rows);
  reference::kda_chunk(x.p, rows, x.q.data(), x.k.data(), x.v.data(), x.g.data(), x.beta.data(), x.state0.data(), r.o.data(),
                       r.state.data(), r.chunk_states.data());
  reference::kda_chunk_backward(x.p, rows, x.q.data(), x.k.data(), x.v.data(), x.g.data(), x.beta.data(), r.chunk_states.data(),
                                x.d_o.data(), x.dstate.data(), r.dq.data(), r.dk.data(), r.dv.data(), r.dg.data(), r.dbeta.data(),
                                r.dstate0.data());
  return r;
}

// RMS(a - b) / RMS(b)
template <class A, class B>
double ratio_error(const std::vector<A>& a, const std::vector<B>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double e = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += e * e;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / (norm + 1e-300));
}

template <class A, class B>
void expect_close(const Results<A>& a, const Results<B>& b, double limit, const std::string& where) {
  const auto left = a.named();
  const auto right = b.named();
  for (std::size_t i = 0; i < left.size(); ++i) {
    ASSERT_EQ(left[i].second->size(), right[i].second->size());
    EXPECT_LE(ratio_error(*left[i].second, *right[i].second), limit) << left[i].first << " " << where;  // NaN fails
  }
}

std::string shape(const Kda& p) {
  return "b" + std::to_string(p.batch) + " t" + std::to_string(p.time) + " H" + std::to_string(p.heads) + " hd" +
         std::to_string(p.head_dim);
}

// Every test leaves the level and the thread count as it found them.
class KdaCpu : public ::testing::Test {
 protected:
  void SetUp() override { threads_ = omp_get_max_threads(); }
  void TearDown() override {
    set_cpu_level("");
    omp_set_num_threads(threads_);
  }

 private:
  int threads_ = 1;
};

// t = 10, 4 keys, 3 values padded by a zero column, scale 1/2 = 4^-1/2.
Inputs<double> vector_inputs() {
  Inputs<double> x;
  x.p = {.batch = 1, .time = 10, .heads = 1, .head_dim = 4};
  for (std::vector<double>* y : {&x.q, &x.k, &x.v, &x.g, &x.d_o}) y->assign(40, 0);
  x.beta.assign(10, 0);
  x.state0.assign(16, 0);
  x.dstate.assign(16, 0);
  for (std::size_t i = 0; i < 10; ++i) {
    const auto t = static_cast<double>(i);
    double qq = 0, kk = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const auto d = static_cast<double>(j);
      x.q[i * 4 + j] = std::sin(0.7 * t + 0.9 * d + 0.1);
      x.k[i * 4 + j] = std::cos(0.5 * t - 0.4 * d + 0.2);
      x.g[i * 4 + j] = -(0.05 + 0.4 * (1 + std::sin(1.1 * t + d)));
      if (j < 3) x.v[i * 4 + j] = std::sin(0.3 * t * (1 + d) + 0.5);
      if (j < 3) x.d_o[i * 4 + j] = std::cos(0.2 * t + d);
      qq += x.q[i * 4 + j] * x.q[i * 4 + j];
      kk += x.k[i * 4 + j] * x.k[i * 4 + j];
    }
    for (std::size_t j = 0; j < 4; ++j) {
      x.q[i * 4 + j] /= std::sqrt(qq);
      x.k[i * 4 + j] /= std::sqrt(kk);
    }
    x.beta[i] = 0.5 + 0.4 * std::sin(0.8 * t);
  }
  for (std::size_t d = 0; d < 4; ++d)
    for (std::size_t c = 0; c < 3; ++c) {
      x.state0[d * 4 + c] = 0.1 * std::cos(static_cast<double>(d) + 2 * static_cast<double>(c));
      x.dstate[d * 4 + c] = 0.2 * std::sin(static_cast<double>(d) * 0.7 + static_cast<double>(c));
    }
  return x;
}

double sum(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double dot(const std::vector<double>& x, const std::vector<double>& y) { return std::inner_product(x.begin(), x.end(), y.begin(), 0.0); }

void expect_vector(const Results<double>& r) {
  const Inputs<double> x = vector_inputs();
  const std::array<double, 3> first{0.092271533607, 0.087883605507, 0.120841599819}, last{-0.023026068675, 0.210216306532, -0.314737775001},
      state{-0.085036943832, 0.120455270606, -0.096950617124};
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(r.o[c], first[c], 2e-12);
    EXPECT_NEAR(r.o[36 + c], last[c], 2e-12);
    EXPECT_NEAR(r.state[c], state[c], 2e-12);
  }
  EXPECT_NEAR(sum(r.o), -0.6869734458176061, 1e-13);
  EXPECT_NEAR(sum(r.state), -0.5307501821665661, 1e-13);
  EXPECT_NEAR(dot(r.o, x.d_o) + dot(r.state, x.dstate), 0.4540673948622598, 1e-13);
  const std::array<std::array<double, 2>, 6> gradients{{{0.874151359971, 0.735327526078},
                                                        {-1.306446949276, 0.753227649228},
                                                        {1.147279677776, 0.981864427652},
                                                        {0.652949821612, 0.289008294316},
                                                        {1.163263834398, 1.077867425725},
                                                        {0.106712397103, 0.315124620785}}};
  const std::array<const std::vector<double>*, 6> found{&r.dq, &r.dk, &r.dv, &r.dg, &r.dbeta, &r.dstate0};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(sum(*found[i]), gradients[i][0], 2e-12) << r.named()[i + 2].first;
    EXPECT_NEAR(std::sqrt(dot(*found[i], *found[i])), gradients[i][1], 2e-12) << r.named()[i + 2].first;
  }
}

TEST(Kda, RecurrenceReproducesTheVector) { expect_vector(run_reference(vector_inputs())); }

TEST(Kda, ChunkFormReproducesTheVector) {
  for (const std::size_t rows : {1, 3, 16}) expect_vector(run_chunk(vector_inputs(), rows));
}

TEST(Kda, ChunkedEqualsRecurrentOnRaggedLengths) {
  for (const std::int64_t hd : {12, 9, 64})
    for (const std::int64_t t : {1, 15, 16, 17, 53}) {
      if (hd == 64 && t % 16 != 1) continue;
      const Inputs<double> x = random_inputs({.batch = 2, .time = t, .heads = 2, .head_dim = hd}, 5);
      const Results<double> recurrent = run_reference(x);
      for (const std::size_t rows : {1, 4, 16, 64}) {
        const Results<double> chunked = run_chunk(x, rows);
        expect_close(chunked, recurrent, 1e-12, shape(x.p) + " rows " + std::to_string(rows));
        if (rows == kKdaChunk) {
          EXPECT_LE(ratio_error(chunked.chunk_states, recurrent.chunk_states), 1e-12) << shape(x.p);
        }
      }
    }
}

TEST(Kda, ReferenceGradientsEqualFiniteDifferences) {
  Inputs<double> x = random_inputs({.batch = 2, .time = 19, .heads = 2, .head_dim = 5}, 3);
  const Results<double> r = run_reference(x);
  const auto loss = [&x] {
    std::vector<double> o(x.size()), state(x.states());
    reference::kda<double>(x.p, x.q.data(), x.k.data(), x.v.data(), x.g.data(), x.beta.data(), x.state0.data(), o.data(), state.data(),
                           nullptr);
    return dot(o, x.d_o) + dot(state, x.dstate);
  };
  const std::array<std::pair<std::vector<double>*, const std::vector<double>*>, 6> sides{
      {{&x.q, &r.dq}, {&x.k, &r.dk}, {&x.v, &r.dv}, {&x.g, &r.dg}, {&x.beta, &r.dbeta}, {&x.state0, &r.dstate0}}};
  for (std::size_t side = 0; side < sides.size(); ++side) {
    std::vector<double>& values = *sides[side].first;
    for (std::size_t i = side; i < values.size(); i += 1 + values.size() / 23) {
      const double keep = values[i], h = 1e-5;
      values[i] = keep + h;
      const double above = loss();
      values[i] = keep - h;
      const double below = loss();
      values[i] = keep;
      EXPECT_NEAR((above - below) / (2 * h), (*sides[side].second)[i], 1e-7) << r.named()[side + 2].first << "[" << i << "]";
    }
  }
}

TEST_F(KdaCpu, EqualsTheReferenceAtEveryLevel) {
  const std::array<Kda, 10> shapes{{{.batch = 1, .time = 1, .heads = 1, .head_dim = 64},
                                    {.batch = 2, .time = 2, .heads = 2, .head_dim = 12},
                                    {.batch = 1, .time = 15, .heads = 2, .head_dim = 100},
                                    {.batch = 2, .time = 16, .heads = 1, .head_dim = 60},
                                    {.batch = 1, .time = 17, .heads = 3, .head_dim = 64},
                                    {.batch = 1, .time = 33, .heads = 2, .head_dim = 9},
                                    {.batch = 1, .time = 20, .heads = 1, .head_dim = 1},
                                    {.batch = 1, .time = 40, .heads = 1, .head_dim = 128},
                                    {.batch = 1, .time = 257, .heads = 1, .head_dim = 16},
                                    {.batch = 2, .time = 257, .heads = 2, .head_dim = 64}}};
  for (const Kda& p : shapes) {
    const Inputs<double> x = random_inputs(p, 5);
    const Inputs<float> narrow = convert<float>(x);
    const Results<double> expected = run_reference(x);
    for (const std::string& level : available_cpu_levels()) {
      set_cpu_level(level);
      const std::uint64_t pairwise = cpu::kda_pairwise_chunks();
      const Results<float> found = run_cpu(narrow);
      expect_close(found, expected, 3e-6, shape(p) + " " + level);
      EXPECT_LE(ratio_error(found.chunk_states, expected.chunk_states), 3e-6) << shape(p) << " " << level;
      EXPECT_EQ(cpu::kda_pairwise_chunks(), pairwise) << "decays of at most -5 never need pairs";
    }
  }
}

TEST_F(KdaCpu, StaysFactoredAndRightWithEveryDecayAtMinusFive) {
  Inputs<double> x = random_inputs({.batch = 1, .time = 37, .heads = 2, .head_dim = 20}, 5);
  for (double& g : x.g) g = -5;
  const Results<double> expected = run_reference(x);
  for (const std::string& level : available_cpu_levels()) {
    set_cpu_level(level);
    const std::uint64_t pairwise = cpu::kda_pairwise_chunks();
    expect_close(run_cpu(convert<float>(x)), expected, 3e-6, level);
    EXPECT_EQ(cpu::kda_pairwise_chunks(), pairwise);
  }
}

TEST_F(KdaCpu, FormsPairsOneByOneWhereAChunkDecaysTooMuch) {
  for (const double strongest : {16.0, 60.0}) {
    for (const std::int64_t hd : {12, 64}) {
      // Two full chunks and one row per unit; the last is too short to span 44 nats.
      Inputs<double> x = random_inputs({.batch = 2, .time = 33, .heads = 2, .head_dim = hd}, strongest);
      for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(hd)) x.g[i] = -strongest;
      const Results<double> expected = run_reference(x);
      for (const std::string& level : available_cpu_levels()) {
        set_cpu_level(level);
        const std::uint64_t pairwise = cpu::kda_pairwise_chunks();
        expect_close(run_cpu(convert<float>(x)), expected, 3e-6, shape(x.p) + " " + level);
        EXPECT_EQ(cpu::kda_pairwise_chunks(), pairwise + 2 * 2 * 4) << "two chunks of four units, forward and backward";
      }
    }
  }
}

TEST_F(KdaCpu, DecidesAboutPairsChunkByChunk) {
  Inputs<double> x = random_inputs({.batch = 1, .time = 64, .heads = 1, .head_dim = 16}, 2);
  for (std::size_t t = 16; t < 32; ++t) x.g[t * 16 + 3] = -9;
  x.g[32 * 16 + 8] = -1000;  // the first row of a chunk is outside every pair, and exp(-1000) = 0 is right
  const Results<double> expected = run_reference(x);
  const std::uint64_t pairwise = cpu::kda_pairwise_chunks();
  expect_close(run_cpu(convert<float>(x)), expected, 3e-6, "");
  EXPECT_EQ(cpu::kda_pairwise_chunks(), pairwise + 2);
}

TEST_F(KdaCpu, StepFormEqualsChunkForm) {
  for (const std::int64_t hd : {64, 60, 12, 9, 1}) {
    const Kda p{.batch = 3, .time = 37, .heads = 2, .head_dim = hd};
    const Inputs<float> x = convert<float>(random_inputs(p, 5));
    const std::size_t row = static_cast<std::size_t>(p.heads * hd), heads = static_cast<std::size_t>(p.heads), time = 37;
    for (const std::string& level : available_cpu_levels()) {
      set_cpu_level(level);
      const Results<float> chunked = run_cpu(x);
      std::vector<float> state = x.state0, o(x.size());
      for (std::size_t t = 0; t < time; ++t) {
        const auto at = [&](const std::vector<float>& y, std::size_t width) {
          std::vector<float> slice;
          for (std::size_t b = 0; b < 3; ++b)
            slice.insert(slice.end(), y.begin() + static_cast<std::ptrdiff_t>((b * time + t) * width),
                         y.begin() + static_cast<std::ptrdiff_t>((b * time + t + 1) * width));
          return slice;
        };
        std::vector<float> one(3 * row);
        Kda step = p;
        step.time = 1;
        cpu::kda_step(step, at(x.q, row).data(), at(x.k, row).data(), at(x.v, row).data(), at(x.g, row).data(), at(x.beta, heads).data(),
                      state.data(), one.data());
        for (std::size_t b = 0; b < 3; ++b)
          std::copy_n(one.begin() + static_cast<std::ptrdiff_t>(b * row), row,
                      o.begin() + static_cast<std::ptrdiff_t>((b * time + t) * row));
      }
      std::vector<float> state_at_once = x.state0, o_at_once(x.size());
      cpu::kda_step(p, x.q.data(), x.k.data(), x.v.data(), x.g.data(), x.beta.data(), state_at_once.data(), o_at_once.data());
      EXPECT_EQ(o_at_once, o) << shape(p) << " " << level;
      EXPECT_EQ(state_at_once, state) << shape(p) << " " << level;
      EXPECT_LE(ratio_error(o, chunked.o), 3e-6) << shape(p) << " " << level;
      EXPECT_LE(ratio_error(state, chunked.state), 3e-6) << shape(p) << " " << level;
    }
  }
}

TEST_F(KdaCpu, RepeatsItsBitsWithAnyNumberOfThreads) {
  const Inputs<float> x = convert<float>(random_inputs({.batch = 3, .time = 65, .heads = 3, .head_dim = 60}, 9));
  for (const std::string& level : available_cpu_levels()) {
    set_cpu_level(level);
    omp_set_num_threads(2);
    const Results<float> first = run_cpu(x), second = run_cpu(x);
    omp_set_num_threads(1);
    const Results<float> alone = run_cpu(x);
    for (std::size_t i = 0; i < first.named().size(); ++i) {
      EXPECT_EQ(*first.named()[i].second, *second.named()[i].second) << first.named()[i].first << " " << level;
      EXPECT_EQ(*first.named()[i].second, *alone.named()[i].second) << first.named()[i].first << " " << level;
    }
    EXPECT_EQ(first.chunk_states, second.chunk_states);
  }
}

TEST_F(KdaCpu, ABatchRowDoesNotSeeItsNeighbours) {
  const Inputs<float> x = convert<float>(random_inputs({.batch = 3, .time = 35, .heads = 2, .head_dim = 20}, 16));
  const auto part = [](const std::vector<float>& y) {
    const auto third = static_cast<std::ptrdiff_t>(y.size() / 3);
    return std::vector<float>(y.begin() + third, y.begin() + 2 * third);
  };
  Inputs<float> middle{x.p, part(x.q), part(x.k), part(x.v), part(x.g), part(x.beta), part(x.state0), part(x.d_o), part(x.dstate)};
  middle.p.batch = 1;
  for (const std::string& level : available_cpu_levels()) {
    set_cpu_level(level);
    const Results<float> all = run_cpu(x), one = run_cpu(middle);
    for (std::size_t i = 0; i < all.named().size(); ++i)
      EXPECT_EQ(part(*all.named()[i].second), *one.named()[i].second) << all.named()[i].first << " " << level;

    Kda step = x.p;
    step.time = 1;
    Kda single = step;
    single.batch = 1;
    const std::size_t row = 40;
    const std::vector<float> q(x.q.begin(), x.q.begin() + 120), beta(x.beta.begin(), x.beta.begin() + 6);
    std::vector<float> states = x.state0, o(120), state = middle.state0, alone(row);
    cpu::kda_step(step, q.data(), x.k.data(), x.v.data(), x.g.data(), beta.data(), states.data(), o.data());
    cpu::kda_step(single, q.data() + row, x.k.data() + row, x.v.data() + row, x.g.data() + row, beta.data() + 2, state.data(),
                  alone.data());
    EXPECT_EQ(part(o), alone) << level;
    EXPECT_EQ(part(states), state) << level;
  }
}

TEST_F(KdaCpu, AcceptsEmptySizesAndMissingStates) {
  const Kda none{.batch = 0, .time = 5, .heads = 2, .head_dim = 8}, still{.batch = 1, .time = 0, .heads = 1, .head_dim = 3};
  for (const auto forward : {cpu::kda, reference::kda<float>})
    forward(none, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  const std::vector<float> before{1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (const bool fast : {true, false}) {
    const auto forward = fast ? cpu::kda : reference::kda<float>;
    const auto backward = fast ? cpu::kda_backward : reference::kda_backward<float>;
    std::vector<float> state(9), dstate0(9, 1);
    forward(still, nullptr, nullptr, nullptr, nullptr, nullptr, before.data(), nullptr, state.data(), nullptr);
    EXPECT_EQ(state, before);
    forward(still, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, state.data(), nullptr);
    EXPECT_EQ(state, std::vector<float>(9, 0));
    backward(still, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, before.data(), nullptr, nullptr, nullptr, nullptr,
             nullptr, dstate0.data());
    EXPECT_EQ(dstate0, (std::vector<float>{2, 3, 4, 5, 6, 7, 8, 9, 10}));
  }
  Inputs<float> x = convert<float>(random_inputs({.batch = 1, .time = 20, .heads = 2, .head_dim = 8}, 5));
  std::vector<float> o(x.size());
  cpu::kda(x.p, x.q.data(), x.k.data(), x.v.data(), x.g.data(), x.beta.data(), nullptr, o.data(), nullptr, nullptr);
  x.state0.assign(x.states(), 0);
  EXPECT_EQ(run_cpu(x).o, o);
}

TEST_F(KdaCpu, AddsToGradientsAndSkipsTheUnwanted) {
  const Inputs<float> x = convert<float>(random_inputs({.batch = 1, .time = 20, .heads = 2, .head_dim = 12}, 5));
  const Results<float> once = run_cpu(x);
  Results<float> more = sized(x);
  for (float& e : more.dk) e = 1;
  for (float& e : more.dbeta) e = 1;
  cpu::kda_backward(x.p, x.q.data(), x.k.data(), x.v.data(), x.g.data(), x.beta.data(), once.chunk_states.data(), x.d_o.data(),
                    x.dstate.data(), nullptr, more.dk.data(), nullptr, nullptr, more.dbeta.data(), nullptr);
  for (std::size_t i = 0; i < more.dk.size(); ++i) EXPECT_EQ(more.dk[i], 1 + once.dk[i]);
  for (std::size_t i = 0; i < more.dbeta.size(); ++i) EXPECT_EQ(more.dbeta[i], 1 + once.dbeta[i]);
}

TEST_F(KdaCpu, KeepsANanVisible) {
  for (const std::string& level : available_cpu_levels()) {
    set_cpu_level(level);
    Inputs<float> x = convert<float>(random_inputs({.batch = 1, .time = 20, .heads = 1, .head_dim = 16}, 5));
    x.g[16 * 3 + 5] = std::numeric_limits<float>::quiet_NaN();
    const Results<float> r = run_cpu(x);
    EXPECT_TRUE(std::isnan(r.o[16 * 19])) << level;
    EXPECT_TRUE(std::isnan(r.dg[16 * 3 + 5])) << level;
  }
}

}  // namespace
}  // namespace dormouse::ops
