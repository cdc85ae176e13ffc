#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "format/safetensors.h"
#include "network/dormouse/step.h"
#include "support.h"

namespace dormouse::network {
namespace {

using autograd::Tape;
using tensor::Dtype;
using tensor::Parameter;
using tensor::Tensor;
using namespace testing;

std::string fixture(const std::string& name) { return std::string(DORMOUSE_TEST_DIR) + "/network/fixtures/" + name; }

ModelConfig fixture_config() {
  ModelConfig c = small_config();
  c.max_seq_len = 20;
  return c;
}

double ratio_error(const Tensor& got, const Tensor& want) {
  double difference = 0;
  double norm = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    difference += std::pow(got.at(i) - want.at(i), 2);
    norm += std::pow(want.at(i), 2);
  }
  return std::sqrt(difference) / (std::sqrt(norm) + 1e-12);
}

struct Golden {
  ModelConfig config = fixture_config();
  Parameters p = declare_parameters(config);
  format::SafetensorsFile file{fixture("forward.safetensors")};
  std::vector<std::uint8_t> inputs, targets;
  std::vector<std::uint32_t> keys;
  LoopInput input;

  explicit Golden(Dtype dtype) {
    for_each(p, config, [&](Parameter& one) { one.value = read("model." + one.name).to(dtype); });
    const Tensor bytes = read("bytes");  // [2, 21]
    const auto* b = bytes.data<std::uint8_t>();
    for (std::int64_t r = 0; r < bytes.dim(0); ++r) {
      for (std::int64_t i = 0; i + 1 < bytes.dim(1); ++i) {
        inputs.push_back(b[r * bytes.dim(1) + i]);
        targets.push_back(b[r * bytes.dim(1) + i + 1]);
      }
    }
    keys = keys_of(config, inputs, 2);
    input = {.batch = 2, .time = 20, .bytes = inputs, .keys = keys, .targets = targets};
  }
  Tensor read(const std::string& name) const {
    const auto* entry = file.find(name);
    if (entry == nullptr) throw std::runtime_error("fixture lacks " + name);
    return file.read(*entry);
  }
};

void expect_golden_forward(Golden& golden, Tape& tape, double tolerance) {
  const LoopOutput out = loop(tape, golden.config, golden.p, golden.input, {.want_logits = true});
  EXPECT_LT(ratio_error(out.logits, golden.read("logits")), tolerance);
  EXPECT_NEAR(out.loss.value().at(0), golden.read("loss").at(0), tolerance * 10);
  const Tensor nats = golden.read("nats");  // [T+1, 40]
  for (std::int64_t n = 0; n < golden.config.max_iter; ++n) {
    EXPECT_LT(ratio_error(out.nats[static_cast<std::size_t>(n)].value(), nats.rows_slice(n, 1)), tolerance) << "iteration " << n;
  }
  EXPECT_LT(ratio_error(out.final_nats.value(), nats.rows_slice(golden.config.max_iter, 1)), tolerance);
  tape.backward(out.loss);
  for_each(golden.p, golden.config, [&](Parameter& one) {
    ASSERT_TRUE(one.grad.defined()) << one.name;
    EXPECT_LT(ratio_error(one.grad, golden.read("grad." + one.name)), tolerance * 10) << one.name;
  });
}

TEST(Network, ReferenceColumnMatchesTheNumpyStatementInForwardAndGradient) {
  Golden golden(Dtype::f64);
  Tape tape;
  expect_golden_forward(golden, tape, 1e-10);
}

TEST(Network, CpuColumnMatchesTheNumpyStatementInForwardAndGradient) {
  Golden golden(Dtype::f32);
  Tape tape;
  expect_golden_forward(golden, tape, 2e-5);
}

TEST(Network, SmallHasTheCountedTensorsAndParameters) {
  const ModelConfig config = preset("small");
  Parameters p = declare_parameters(config);
  EXPECT_EQ(list(p, config).size(), 45U);
  EXPECT_EQ(count(p, config), 8'399'693);
}

TEST(Network, ThePublicNamesOfAllTensors) {
  std::set<std::string> want{"embedding.weight",
                             "loop.controller.weight",
                             "loop.iteration_embedding",
                             "loop.norm.weight",
                             "loop.residual_scale",
                             "loop.memory_dense.weight",
                             "norm.weight",
                             "loop.engram.table",
                             "loop.engram.key.weight",
                             "loop.attention.decay_bias",
                             "loop.attention.a_log",
                             "loop.engram.value.weight"};
  for (const char* name : {"q", "k", "v", "decay_up", "decay_down", "beta", "gate", "norm", "out"})
    want.insert("loop.attention." + std::string(name) + ".weight");
  for (const char* name : {"loop.experts.0.up", "loop.experts.0.down", "loop.experts.1.up", "loop.experts.1.down", "loop.experts.2.up",
                           "loop.experts.2.down", "loop.readout", "head"}) {
    for (const char* factor : {".u", ".s", ".v"}) want.insert(std::string(name) + factor);
  }
  ASSERT_EQ(want.size(), 45U);
  const ModelConfig config = preset("small");
  Parameters p = declare_parameters(config);
  std::set<std::string> got;
  for (const Parameter* one : list(p, config)) got.insert(one->name);
  EXPECT_EQ(got, want);
}

TEST(Network, AnArmThatIsOffHasNoParameters) {
  ModelConfig config = small_config();
  Parameters all = declare_parameters(config);
  const std::size_t with = list(all, config).size();
  config.use_kda = false;
  config.use_engram = false;
  Parameters none = declare_parameters(config);
  EXPECT_EQ(list(none, config).size(), with - 11 - 3);
  none = make_parameters(config, 1);
  const auto bytes = random_bytes(20, 3);
  Tape tape(false);
  const LoopOutput out =
      loop(tape, config, none, {.batch = 1, .time = 20, .bytes = bytes, .keys = {}, .targets = bytes}, {.want_logits = true});
  EXPECT_TRUE(std::isfinite(out.loss.value().at(0)));
}

TEST(Network, EachTensorDrawsFromItsOwnStream) {
  ModelConfig config = small_config();
  Parameters a = make_parameters(config, 5);
  config.use_engram = false;
  Parameters b = make_parameters(config, 5);
  EXPECT_EQ(ratio_error(b.attention.q.value, a.attention.q.value), 0);
  EXPECT_EQ(ratio_error(b.head.u.value, a.head.u.value), 0);
  Parameters c = make_parameters(config, 6);
  EXPECT_GT(ratio_error(c.head.u.value, a.head.u.value), 0.5);
}

TEST(Network, SpectralFactorsStartOrthonormal) {
  const ModelConfig config = preset("tiny");
  Parameters p = make_parameters(config, 1);
  const Tensor& u = p.experts[0].down.u.value;
  for (std::int64_t i = 0; i < u.dim(1); ++i) {
    for (std::int64_t j = 0; j < u.dim(1); ++j) {
      double dot = 0;
      for (std::int64_t r = 0; r < u.dim(0); ++r) dot += u.at(r * u.dim(1) + i) * u.at(r * u.dim(1) + j);
      EXPECT_NEAR(dot, i == j ? 1 : 0, 1e-6);
    }
  }
}

TEST(Network, DepthOutsideTheLoopIsRefused) {
  const ModelConfig config = small_config();
  Parameters p = make_parameters(config, 1);
  const auto bytes = random_bytes(8, 1);
  const auto keys = keys_of(config, bytes, 1);
  Tape tape(false);
  EXPECT_THROW(loop(tape, config, p, {.batch = 1, .time = 8, .bytes = bytes, .keys = keys, .targets = {}}, {.depth = 4}), std::exception);
}

TEST(Network, EveryPresetNameIsKnownAndOthersAreRefusedWithTheNearest) {
  for (const auto name : preset_names()) {
    ModelConfig config = preset(name);
    validate(config);
  }
  try {
    preset("smal");
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("small"), std::string::npos);
  }
}

TEST(Network, HeadsThatDoNotDivideTheWidthAreRefused) {
  ModelConfig config = small_config();
  config.n_heads = 5;
  EXPECT_THROW(validate(config), std::exception);
}

}  // namespace
}  // namespace dormouse::network
