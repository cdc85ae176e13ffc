#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "ops/ops.h"

namespace dormouse::optim {
namespace {

using tensor::Dtype;
using tensor::Kind;
using tensor::Role;
using tensor::Shape;

const ops::OpTable<float>& table() { return ops::reference_table<float>(); }

Tensor random(const Shape& shape, std::uint64_t seed, double scale = 1) {
  base::SplitMix64 rng(seed);
  Tensor t = Tensor::empty(shape, Dtype::f32);
  for (std::int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = static_cast<float>(scale * rng.normal());
  return t;
}

Parameter make(const std::string& name, Role role, Kind kind, const Shape& shape, std::uint64_t seed, std::int64_t heads = 1) {
  return {.name = name, .role = role, .kind = kind, .value = random(shape, seed), .grad = random(shape, seed + 1000), .heads = heads};
}

std::string bits(const Tensor& t) {
  const Tensor c = t.clone();
  return {reinterpret_cast<const char*>(c.bytes()), static_cast<std::size_t>(c.size()) * tensor::size_of(c.dtype())};
}

// One parameter of every kind of group.
std::vector<Parameter> assorted() {
  return {make("embedding.weight", Role::embedding, Kind::dense, {8, 6}, 1),
          make("loop.attention.q.weight", Role::attention_qk, Kind::dense, {6, 8}, 2, 2),
          make("loop.experts.0.up.u", Role::expert, Kind::factor_in, {6, 3}, 3),
          make("loop.experts.0.up.s", Role::expert, Kind::scale, {3}, 4),
          make("loop.experts.0.up.v", Role::expert, Kind::factor_out, {9, 3}, 5),
          make("loop.engram.table", Role::engram_table, Kind::table, {10, 4}, 6),
          make("loop.engram.key.weight", Role::engram_key, Kind::dense, {5, 6}, 7),
          make("head.u", Role::head, Kind::factor_in, {6, 3}, 8),
          make("loop.attention.out.weight", Role::attention, Kind::dense, {8, 6}, 9),
          make("norm.weight", Role::norm, Kind::gain, {6}, 10)};
}

std::vector<Parameter*> pointers(std::vector<Parameter>& parameters) {
  std::vector<Parameter*> out;
  for (Parameter& p : parameters) out.push_back(&p);
  return out;
}

std::map<std::string, std::string> snapshot(const std::vector<Parameter>& parameters, Optimizer& optimizer) {
  std::map<std::string, std::string> out;
  for (const Parameter& p : parameters) out[p.name] = bits(p.value);
  optimizer.for_each_state([&](const std::string& name, Tensor& value) { out[name] = bits(value); });
  return out;
}

void redraw_gradients(std::vector<Parameter>& parameters, std::uint64_t seed) {
  for (Parameter& p : parameters) p.grad.copy_from(random(p.value.shape(), seed++));
}

TEST(Routing, EveryRoleAndKindFallsInItsGroup) {
  struct Case {
    Role role;
    Kind kind;
    Group mix, adamw;
  };
  const Group muon = Group::muon, qk = Group::qk, rows = Group::table, rest = Group::rest;
  const Case cases[] = {{Role::expert, Kind::factor_in, muon, rest},   {Role::expert, Kind::factor_out, muon, rest},
                        {Role::expert, Kind::scale, rest, rest},       {Role::expert, Kind::dense, rest, rest},
                        {Role::readout, Kind::factor_in, muon, rest},  {Role::readout, Kind::factor_out, muon, rest},
                        {Role::readout, Kind::scale, rest, rest},      {Role::head, Kind::factor_in, rest, rest},
                        {Role::head, Kind::factor_out, rest, rest},    {Role::head, Kind::scale, rest, rest},
                        {Role::engram_key, Kind::dense, muon, rest},   {Role::engram_value, Kind::dense, rest, rest},
                        {Role::engram_table, Kind::table, rows, rows}, {Role::attention_qk, Kind::dense, qk, rest},
                        {Role::attention_qk, Kind::bias, rest, rest},  {Role::attention, Kind::dense, rest, rest},
                        {Role::attention, Kind::bias, rest, rest},     {Role::memory_dense, Kind::dense, rest, rest},
                        {Role::controller, Kind::dense, rest, rest},   {Role::iteration, Kind::bias, rest, rest},
                        {Role::norm, Kind::gain, rest, rest},          {Role::embedding, Kind::dense, rest, rest}};
  for (const Case& c : cases) {
    const Parameter p{.name = "x", .role = c.role, .kind = c.kind, .value = {}, .grad = {}};
    EXPECT_EQ(group_of(p, "mix"), c.mix) << tensor::name_of(c.role) << " " << tensor::name_of(c.kind);
    EXPECT_EQ(group_of(p, "adamw"), c.adamw) << tensor::name_of(c.role) << " " << tensor::name_of(c.kind);
    EXPECT_THROW(group_of(p, "adam"), base::Error);
    EXPECT_THROW(group_of(p, ""), base::Error);
  }
}

TEST(Routing, MixDenseAddsTheBlocksDenseProjectionsAndNothingElse) {
  const std::pair<Role, Kind> projections[] = {
      {Role::attention, Kind::dense}, {Role::memory_dense, Kind::dense}, {Role::engram_value, Kind::dense}};
  for (const auto& [role, kind] : projections) {
    EXPECT_EQ(group_of({.name = "x", .role = role, .kind = kind, .value = {}, .grad = {}}, "mix-dense"), Group::dense);
  }
  for (const Role role : {Role::embedding, Role::controller, Role::iteration, Role::attention_qk, Role::attention_beta, Role::engram_table,
                          Role::engram_key, Role::expert, Role::readout, Role::norm, Role::head}) {
    for (const Kind kind : {Kind::dense, Kind::factor_in, Kind::factor_out, Kind::scale, Kind::bias, Kind::gain, Kind::table}) {
      const Parameter p{.name = "x", .role = role, .kind = kind, .value = {}, .grad = {}};
      EXPECT_EQ(group_of(p, "mix-dense"), group_of(p, "mix")) << tensor::name_of(role) << " " << tensor::name_of(kind);
    }
  }
}

TEST(Routing, TableAndSummaryNameEveryParameterOnce) {
  auto parameters = assorted();
  const Optimizer optimizer(pointers(parameters), {}, table());
  EXPECT_EQ(optimizer.summary(), "muon 3 (75), qk 1 (48), table 1 (40), rest 5 (123)");
  const std::string text = optimizer.routing_table();
  for (const Parameter& p : parameters) {
    const std::size_t at = text.find(p.name + " ");
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_EQ(text.find(p.name + " ", at + 1), std::string::npos);
  }
}

TEST(Routing, WrongShapesAreRefusedByName) {
  const auto refuses = [](Parameter p) {
    try {
      const Optimizer optimizer({&p}, {}, table());
    } catch (const base::Error& e) {
      return std::string(e.what()).find(p.name) != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(refuses(make("k1", Role::engram_key, Kind::dense, {4}, 1)));
  EXPECT_TRUE(refuses(make("q", Role::attention_qk, Kind::dense, {4, 6}, 1, 4)));
  Parameter undefined = make("none", Role::norm, Kind::gain, {4}, 1);
  undefined.value = {};
  EXPECT_TRUE(refuses(undefined));
  EXPECT_FALSE(refuses(make("fine", Role::attention_qk, Kind::dense, {4, 6}, 1, 3)));
}

TEST(Routing, WeightDecayTouchesTwoDimensionalDenseWeightsOnly) {
  const std::set<std::string> decayed{"loop.attention.q.weight", "loop.engram.key.weight", "loop.attention.out.weight"};
  for (const std::string opt : {"mix", "adamw"}) {
    auto with = assorted();
    auto without = assorted();
    for (auto* list : {&with, &without}) {
      OptimizerConfig config;
      config.opt = opt;
      config.weight_decay = list == &with ? 0.5 : 0;
      config.retract_every = 0;
      Optimizer optimizer(pointers(*list), config, table());
      optimizer.step({0.1, 0.1}, nullptr);
    }
    for (std::size_t i = 0; i < with.size(); ++i)
      EXPECT_EQ(bits(with[i].value) != bits(without[i].value), decayed.count(with[i].name) == 1) << opt << " " << with[i].name;
  }
}

// The golden of the prior art (3 x 2, first step, lr 1e-2): there the decay is multiplied by the shape factor sqrt(3/2), here by
// lr alone, so weight_decay carries the factor. The weight is stored as the transpose [in = 2, out = 3].
TEST(MuonStep, GoldenOfTheFirstStepStoredTransposed) {
  const std::vector<float> w{0.1F, 0.3F, 0.5F, 0.2F, 0.4F, 0.6F};
  const std::vector<float> g{1, -0.5F, 3, 2, 0.25F, -1};
  const float expected[] = {0.0945927F, 0.3103522F, 0.4883427F, 0.1889804F, 0.3934650F, 0.6038675F};
  Parameter p = make("k", Role::engram_key, Kind::dense, {2, 3}, 1);
  p.value = Tensor::from<float>({2, 3}, w);
  p.grad = Tensor::from<float>({2, 3}, g);
  OptimizerConfig config;
  config.weight_decay = 0.01 * std::sqrt(1.5);
  for (const auto* column : {&table(), &ops::cpu_table()}) {
    p.value.copy_from(Tensor::from<float>({2, 3}, w));
    Optimizer optimizer({&p}, config, *column);
    const StepReport report = optimizer.step({1e-2, 1e-2}, nullptr);
    EXPECT_TRUE(report.applied);
    EXPECT_NEAR(report.grad_norm, std::sqrt(1 + .25 + 9 + 4 + .0625 + 1), 1e-6);
    EXPECT_EQ(report.clip_norm, 0);
    for (int i = 0; i < 6; ++i) EXPECT_NEAR(p.value.data<float>()[i], expected[i], 2e-7) << column->name << " " << i;
  }
}

// factor_out is stored with fan-out rows already: the same numbers as the transposed dense weight.
TEST(MuonStep, FactorOutIsTheTransposeOfADenseWeight) {
  Parameter dense = make("k", Role::engram_key, Kind::dense, {3, 7}, 3);
  Parameter factor = make("v", Role::expert, Kind::factor_out, {7, 3}, 4);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 7; ++j) {
      factor.value.data<float>()[j * 3 + i] = dense.value.data<float>()[i * 7 + j];
      factor.grad.data<float>()[j * 3 + i] = dense.grad.data<float>()[i * 7 + j];
    }
  OptimizerConfig config;
  config.weight_decay = 0;
  config.retract_every = 0;
  Optimizer optimizer({&dense, &factor}, config, table());
  for (int step = 0; step < 3; ++step) optimizer.step({0.05, 0.05}, nullptr);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 7; ++j) EXPECT_NEAR(factor.value.data<float>()[j * 3 + i], dense.value.data<float>()[i * 7 + j], 2e-6);
}

// A factor_in [in, k] has fan-out k < in: no growth factor, and its last normalised side is the k columns.
TEST(MuonStep, FactorInHasFanOutK) {
  Parameter p = make("u", Role::expert, Kind::factor_in, {9, 3}, 5);
  const Tensor before = p.value.clone();
  OptimizerConfig config;
  config.retract_every = 0;
  Optimizer optimizer({&p}, config, table());
  optimizer.step({0.1, 0.1}, nullptr);
  for (int c = 0; c < 3; ++c) {
    double squares = 0;
    for (int r = 0; r < 9; ++r) squares += std::pow((p.value.at(r * 3 + c) - before.at(r * 3 + c)) / 0.1, 2);
    EXPECT_NEAR(squares, 1, 1e-4);
  }
}

TEST(MuonStep, HeadsOfQkAreSeparateMatrices) {
  const std::int64_t d = 6, heads = 3, hd = 4;
  Parameter fused = make("q", Role::attention_qk, Kind::dense, {d, heads * hd}, 7, heads);
  std::vector<Parameter> single;
  for (std::int64_t h = 0; h < heads; ++h) {
    single.push_back(make("q" + std::to_string(h), Role::attention_qk, Kind::dense, {d, hd}, 0));
    single.back().value = fused.value.columns(h * hd, hd).clone();
    single.back().grad = fused.grad.columns(h * hd, hd).clone();
  }
  for (const auto* column : {&table(), &ops::cpu_table()}) {
    Optimizer one({&fused}, {}, *column);
    Optimizer many(pointers(single), {}, *column);
    for (int step = 0; step < 4; ++step) {
      fused.grad.copy_from(random({d, heads * hd}, 100 + static_cast<std::uint64_t>(step)));
      if (step == 2) fused.grad.columns(hd, hd).fill_zero();
      for (std::int64_t h = 0; h < heads; ++h) single[static_cast<std::size_t>(h)].grad = fused.grad.columns(h * hd, hd).clone();
      EXPECT_EQ(one.step({0.02, 0.02}, nullptr).zero_gradients, step == 2 ? 1 : 0);
      EXPECT_EQ(many.step({0.02, 0.02}, nullptr).zero_gradients, step == 2 ? 1 : 0);
      for (std::int64_t h = 0; h < heads; ++h)
        EXPECT_EQ(bits(fused.value.columns(h * hd, hd)), bits(single[static_cast<std::size_t>(h)].value)) << column->name << step << h;
    }
  }
}

TEST(MuonStep, ZeroGradientChangesNothingMomentumIncluded) {
  auto parameters = assorted();
  OptimizerConfig config;
  config.retract_every = 0;
  Optimizer optimizer(pointers(parameters), config, table());
  optimizer.step({0.01, 0.01}, nullptr);
  const auto before = snapshot(parameters, optimizer);
  for (Parameter& p : parameters) p.zero_grad();
  const StepReport report = optimizer.step({0.01, 0.01}, nullptr);
  EXPECT_TRUE(report.applied);
  EXPECT_EQ(report.zero_gradients, 3 + 2);
  const auto after = snapshot(parameters, optimizer);
  for (const Parameter& p : parameters) {
    const Group group = group_of(p, "mix");
    if (group != Group::muon && group != Group::qk) continue;
    EXPECT_EQ(before.at(p.name), after.at(p.name)) << p.name;
    EXPECT_EQ(before.at("optimizer." + p.name + ".momentum"), after.at("optimizer." + p.name + ".momentum")) << p.name;
  }
}

TEST(AdamW, FollowsTheRecurrenceInDoubleForTenSteps) {
  Parameter dense = make("out", Role::attention, Kind::dense, {3, 5}, 20);
  Parameter gain = make("norm", Role::norm, Kind::gain, {4}, 21);
  Parameter embedding = make("embedding", Role::embedding, Kind::dense, {2, 3}, 22);
  struct Oracle {
    Parameter* p;
    double multiplier, decay;
    std::vector<double> w, m, v;
  };
  std::vector<Oracle> oracles{{&dense, 1, 0.05, {}, {}, {}}, {&gain, 1, 0, {}, {}, {}}, {&embedding, 2, 0, {}, {}, {}}};
  for (Oracle& o : oracles) {
    for (std::int64_t i = 0; i < o.p->value.size(); ++i) o.w.push_back(o.p->value.at(i));
    o.m.assign(o.w.size(), 0);
    o.v.assign(o.w.size(), 0);
  }
  Optimizer optimizer({&dense, &gain, &embedding}, {}, table());
  const double lr = 1e-2;
  for (int t = 1; t <= 10; ++t) {
    // Odd steps are above the clip of 1, even ones below.
    double squares = 0;
    for (std::size_t k = 0; k < oracles.size(); ++k) {
      Parameter& p = *oracles[k].p;
      p.grad = random(p.value.shape(), static_cast<std::uint64_t>(t) * 10 + k, t % 2 == 1 ? 1.0 : 0.01);
      for (std::int64_t i = 0; i < p.grad.size(); ++i) squares += p.grad.at(i) * p.grad.at(i);
    }
    const double norm = std::sqrt(squares);
    ASSERT_EQ(norm > 1, t % 2 == 1);
    const double scale = norm > 1 ? 1 / norm : 1;
    const StepReport report = optimizer.step({lr, lr}, nullptr);
    EXPECT_NEAR(report.clip_norm, norm, 1e-6);
    EXPECT_NEAR(report.grad_norm, norm, 1e-6);
    for (Oracle& o : oracles)
      for (std::size_t i = 0; i < o.w.size(); ++i) {
        const double g = scale * o.p->grad.at(static_cast<std::int64_t>(i));
        o.m[i] = 0.9 * o.m[i] + 0.1 * g;
        o.v[i] = 0.95 * o.v[i] + 0.05 * g * g;
        const double rate = lr * o.multiplier;
        o.w[i] =
            (1 - rate * o.decay) * o.w[i] - rate * (o.m[i] / (1 - std::pow(0.9, t))) / (std::sqrt(o.v[i] / (1 - std::pow(0.95, t))) + 1e-8);
        ASSERT_NEAR(o.p->value.at(static_cast<std::int64_t>(i)), o.w[i], 2e-6) << o.p->name << " step " << t;
      }
  }
  EXPECT_EQ(optimizer.applied(), 10);
}

TEST(AdamW, ClipCanBeSwitchedOffAndIgnoresTheOtherGroups) {
  Parameter gain = make("norm", Role::norm, Kind::gain, {4}, 21);
  Parameter rows = make("table", Role::engram_table, Kind::table, {4, 2}, 22);
  for (const double clip : {0.0, 1.0}) {
    gain.grad = random({4}, 3, 10);
    rows.grad = random({4, 2}, 4, 1000);
    OptimizerConfig config;
    config.grad_clip = clip;
    Optimizer optimizer({&gain, &rows}, config, table());
    optimizer.step({1e-3, 1e-3}, nullptr);
    optimizer.for_each_state([&](const std::string& name, Tensor& value) {
      if (name != "optimizer.norm.m" && name != "optimizer.table.m") return;
      const bool table_row = name == "optimizer.table.m";
      const double norm = std::sqrt(table().sum_squares(value.size(), value.data<float>()));
      const double raw = 0.1 * std::sqrt(table().sum_squares(value.size(), (table_row ? rows : gain).grad.data<float>()));
      EXPECT_NEAR(norm / (clip == 0 || table_row ? raw : 0.1), 1, 1e-5) << name << " clip " << clip;
    });
  }
}

TEST(TableRows, OnlyTouchedRowsMoveEachByItsOwnCount) {
  Parameter rows = make("table", Role::engram_table, Kind::table, {6, 3}, 30);
  const Tensor start = rows.value.clone();
  Optimizer optimizer({&rows}, {}, table());
  const std::vector<std::vector<std::uint32_t>> touched{{0, 2}, {2}, {2, 5}, {0}};
  std::vector<int> count(6, 0);
  std::vector<double> w(18), m(18, 0), v(18, 0);
  for (int i = 0; i < 18; ++i) w[static_cast<std::size_t>(i)] = start.at(i);
  for (std::size_t t = 0; t < touched.size(); ++t) {
    // The gradient of untouched rows holds garbage that no one may read.
    rows.grad = random({6, 3}, 40 + t);
    for (std::uint32_t r = 0; r < 6; ++r)
      if (std::find(touched[t].begin(), touched[t].end(), r) == touched[t].end())
        rows.grad.rows_slice(r, 1).data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(optimizer.step({1e-2, 1e-2}, &touched[t]).applied);
    for (const std::uint32_t r : touched[t]) {
      const int n = ++count[r];
      for (std::size_t i = r * 3; i < r * 3 + 3; ++i) {
        const double g = rows.grad.at(static_cast<std::int64_t>(i));
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.95 * v[i] + 0.05 * g * g;
        w[i] -= 3e-2 * (m[i] / (1 - std::pow(0.9, n))) / (std::sqrt(v[i] / (1 - std::pow(0.95, n))) + 1e-8);
      }
    }
  }
  for (int i = 0; i < 18; ++i) {
    EXPECT_NEAR(rows.value.at(i), w[static_cast<std::size_t>(i)], 1e-6);
    if (count[static_cast<std::size_t>(i / 3)] == 0) {
      EXPECT_EQ(rows.value.at(i), start.at(i));
    }
  }
  optimizer.for_each_state([&](const std::string& name, Tensor& value) {
    if (name != "optimizer.table.count") return;
    for (std::size_t r = 0; r < 6; ++r) EXPECT_EQ(value.data<std::uint32_t>()[r], static_cast<std::uint32_t>(count[r]));
  });
}

TEST(TableRows, NoneTouchedMovesNoneAndNullMovesAll) {
  Parameter rows = make("table", Role::engram_table, Kind::table, {4, 3}, 31);
  Optimizer optimizer({&rows}, {}, table());
  const std::string before = bits(rows.value);
  const std::vector<std::uint32_t> none;
  optimizer.step({1e-2, 1e-2}, &none);
  EXPECT_EQ(bits(rows.value), before);
  const Tensor start = rows.value.clone();
  optimizer.step({1e-2, 1e-2}, nullptr);
  for (int i = 0; i < 12; ++i) EXPECT_NEAR(std::abs(rows.value.at(i) - start.at(i)), 3e-2, 1e-4);  // a first Adam step is lr
}

TEST(Firewall, AnyNonFiniteGradientLeavesWeightsAndStateBitIdentical) {
  auto parameters = assorted();
  Optimizer optimizer(pointers(parameters), {}, table());
  optimizer.step({0.01, 0.01}, nullptr);
  const auto before = snapshot(parameters, optimizer);
  for (std::size_t k = 0; k < parameters.size(); ++k)
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      redraw_gradients(parameters, 500);
      parameters[k].grad.data<float>()[parameters[k].grad.size() - 1] = poison;
      const StepReport report = optimizer.step({0.01, 0.01}, nullptr);
      EXPECT_FALSE(report.applied) << parameters[k].name;
      EXPECT_EQ(snapshot(parameters, optimizer), before) << parameters[k].name;
    }
  EXPECT_EQ(optimizer.applied(), 1);
  redraw_gradients(parameters, 500);
  EXPECT_TRUE(optimizer.step({0.01, 0.01}, nullptr).applied);
}

TEST(Firewall, MissingGradientIsAnErrorThatNamesTheParameter) {
  auto parameters = assorted();
  parameters[4].grad = {};
  Optimizer optimizer(pointers(parameters), {}, table());
  const auto before = snapshot(parameters, optimizer);
  EXPECT_THROW(optimizer.step({0.01, 0.01}, nullptr), base::Error);
  EXPECT_EQ(snapshot(parameters, optimizer), before);
}

TEST(Retraction, EveryFactorOfBodyAndHeadComesBackWhenDue) {
  for (const std::string opt : {"mix", "adamw"}) {
    auto parameters = assorted();
    OptimizerConfig config;
    config.opt = opt;
    config.retract_every = 2;
    config.retract_iters = 12;
    Optimizer optimizer(pointers(parameters), config, table());
    optimizer.step({0.01, 0.01}, nullptr);
    EXPECT_GT(optimizer.max_ortho(), 0.1);
    optimizer.step({0.01, 0.01}, nullptr);
    EXPECT_LT(optimizer.max_ortho(), 1e-5) << opt;
  }
}

TEST(State, RoundTripContinuesBitForBit) {
  auto a = assorted();
  auto b = assorted();
  Optimizer first(pointers(a), {}, table());
  Optimizer second(pointers(b), {}, table());
  const std::vector<std::uint32_t> touched{1, 3, 9};
  for (std::uint64_t t = 0; t < 3; ++t) {
    redraw_gradients(a, 700 + t * 50);
    first.step({0.01, 0.01}, &touched);
  }
  std::map<std::string, Tensor> saved;
  first.for_each_state([&](const std::string& name, Tensor& value) { EXPECT_TRUE(saved.emplace(name, value.clone()).second) << name; });
  EXPECT_EQ(saved.size(), 4U + 6U * 2U + 1U + 1U);
  for (std::size_t i = 0; i < a.size(); ++i) b[i].value.copy_from(a[i].value);
  second.for_each_state([&](const std::string& name, Tensor& value) { value.copy_from(saved.at(name)); });
  EXPECT_EQ(second.applied(), 3);
  for (std::uint64_t t = 0; t < 2; ++t) {
    redraw_gradients(a, 900 + t * 50);
    redraw_gradients(b, 900 + t * 50);
    first.step({0.01, 0.01}, &touched);
    second.step({0.01, 0.01}, &touched);
  }
  EXPECT_EQ(snapshot(a, first), snapshot(b, second));
}

TEST(Columns, CpuAndReferenceAgreeOnAStepOfEveryGroup) {
  auto a = assorted();
  auto b = assorted();
  Optimizer reference(pointers(a), {}, table());
  Optimizer cpu(pointers(b), {}, ops::cpu_table());
  for (std::uint64_t t = 0; t < 3; ++t) {
    redraw_gradients(a, 300 + t * 50);
    redraw_gradients(b, 300 + t * 50);
    reference.step({0.01, 0.01}, nullptr);
    cpu.step({0.01, 0.01}, nullptr);
  }
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::int64_t j = 0; j < a[i].value.size(); ++j) EXPECT_NEAR(a[i].value.at(j), b[i].value.at(j), 1e-5) << a[i].name;
}

}  // namespace
}  // namespace dormouse::optim
