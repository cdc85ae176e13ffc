#include "network/dormouse/model_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "config/toml.h"
#include "folder.h"
#include "support.h"

namespace dormouse::network {
namespace {

class ModelFileTest : public tests::FolderTest {
 protected:
  void SetUp() override {
    path_ = folder_ / "m.safetensors";
    parameters_ = make_parameters(config_, 1);
  }

  void write(std::vector<format::NamedTensor> tensors, const ModelConfig& config) {
    format::write_safetensors(path_, tensors,
                              {{"dormouse.kind", "weights"}, {"step", "12"}, {"config", "[model]\n" + config::write_table(config)}});
  }
  std::string refusal() {
    try {
      load_model(path_);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "accepted";
  }

  ModelConfig config_ = testing::small_config();
  Parameters parameters_;
  std::filesystem::path path_;
};

TEST_F(ModelFileTest, WeightsReadBackBitForBit) {
  write(model_tensors(parameters_, config_), config_);
  Model model = load_model(path_);
  EXPECT_EQ(model.config, config_);
  EXPECT_EQ(model.step, 12);
  const auto before = list(parameters_, config_), after = list(model.parameters, model.config);
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    for (std::int64_t j = 0; j < before[i]->value.size(); ++j) ASSERT_EQ(before[i]->value.at(j), after[i]->value.at(j)) << before[i]->name;
  }
}

TEST_F(ModelFileTest, NotANumberIsRefusedByNameInEveryTensor) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (auto* parameter : list(parameters_, config_)) {
      float& last = parameter->value.data<float>()[parameter->value.size() - 1];
      const float good = last;
      last = bad;
      write(model_tensors(parameters_, config_), config_);
      last = good;
      const std::string message = refusal();
      EXPECT_NE(message.find(parameter->name), std::string::npos) << message;
      EXPECT_NE(message.find("m.safetensors"), std::string::npos) << message;
    }
  }
}

TEST_F(ModelFileTest, AMissingAnExtraAndAMisshapenTensorAreRefused) {
  auto tensors = model_tensors(parameters_, config_);
  const auto all = tensors;
  tensors.pop_back();
  write(tensors, config_);
  EXPECT_NE(refusal().find("missing"), std::string::npos);
  tensors = all;
  tensors.push_back({"model.loop.extra", tensor::Tensor::zeros({2}, tensor::Dtype::f32)});
  write(tensors, config_);
  EXPECT_NE(refusal().find("model.loop.extra"), std::string::npos);
  tensors = all;
  tensors[0].value = tensor::Tensor::zeros({255, config_.d_model}, tensor::Dtype::f32);
  write(tensors, config_);
  EXPECT_NE(refusal().find("[255,24]"), std::string::npos);
  tensors = all;
  tensors[0].value = tensor::Tensor::zeros({256, config_.d_model}, tensor::Dtype::bf16);
  write(tensors, config_);
  EXPECT_NE(refusal().find("bf16"), std::string::npos);
}

TEST_F(ModelFileTest, AnotherConfigsWeightsAreRefused) {
  auto other = config_;
  other.d_model = 48;
  write(model_tensors(parameters_, config_), other);
  EXPECT_NE(refusal().find("another"), std::string::npos);
  other = config_;
  other.use_engram = false;
  write(model_tensors(parameters_, config_), other);
  EXPECT_NE(refusal().find("another"), std::string::npos);
  other = config_;
  other.equations = 99;
  write(model_tensors(parameters_, config_), other);
  EXPECT_NE(refusal().find("equations"), std::string::npos);
}

TEST_F(ModelFileTest, OtherFilesAreToldApart) {
  format::write_safetensors(path_, model_tensors(parameters_, config_), {});
  EXPECT_NE(refusal().find("without a dormouse config"), std::string::npos);
  base::write_file_atomically(path_, "Call me Ishmael. Some years ago, never mind how long precisely\n");
  EXPECT_NE(refusal().find("text"), std::string::npos);
  std::filesystem::remove(path_);
  EXPECT_NE(refusal().find("m.safetensors"), std::string::npos);
  path_ = folder_;
  EXPECT_NE(refusal().find("checkpoint.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace dormouse::network
