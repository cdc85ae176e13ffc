#include "network/dormouse/export.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "config/toml.h"
#include "folder.h"
#include "format/gguf.h"
#include "network/dormouse/step.h"
#include "network/dormouse/weights.h"
#include "support.h"

namespace dormouse::network {
namespace {

using format::Scales;
using format::Storage;

class ExportTest : public tests::FolderTest {
 protected:
  void SetUp() override {
    parameters_ = make_parameters(config_, 1);
    testing::perturb(parameters_, config_, 2);
  }

  std::filesystem::path exported(const std::string& dtype, bool force = false) {
    const auto path = folder_ / (dtype + ".dmexp");
    format::write_dmexp(path, export_image(parameters_, config_, provenance_, dtype, force));
    return path;
  }
  template <class Action>
  static std::string refusal(const Action& action) {
    try {
      action();
    } catch (const base::Error& error) {
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
      return error.what();
    }
    return "accepted";
  }
  // Logits of 20 bytes, one after the other.
  static std::vector<float> logits(const Weights& weights) {
    const auto bytes = testing::random_bytes(20, 3);
    const auto keys = testing::keys_of(weights.config, bytes, 1);
    auto state = zero_state(weights.config, 1);
    layer::Scratch scratch;
    std::vector<float> out(bytes.size() * 256);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      step(ops::cpu_table(true), weights, {.batch = 1, .bytes = {&bytes[i], 1}, .keys = std::span(keys).subspan(3 * i, 3)}, state, scratch,
           std::span(out).subspan(256 * i, 256));
    return out;
  }
  static std::vector<float> logits(const ModelConfig& config, Parameters& parameters) { return logits(read_weights(parameters, config)); }
  static double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    return largest;
  }
  // Every spectral factor made ternary, each output with a scale of its own.
  void make_factors_ternary() {
    for_each(parameters_, config_, [&](Parameter& p) {
      if (p.kind != tensor::Kind::factor_in && p.kind != tensor::Kind::factor_out) return;
      float* w = p.value.data<float>();
      const std::int64_t columns = p.value.dim(1);
      for (std::int64_t i = 0; i < p.value.size(); ++i) {
        const std::int64_t output = p.kind == tensor::Kind::factor_in ? i % columns : i / columns;
        const float scale = 0.05F + 0.01F * static_cast<float>(output % 7);
        w[i] = w[i] > 0.05F ? scale : (w[i] < -0.05F ? -scale : 0);
      }
    });
  }

  ModelConfig config_ = testing::small_config();
  Parameters parameters_;
  Provenance provenance_{.source = "checkpoint.safetensors", .step = 12, .bpb = {}, .window = {}};
};

TEST_F(ExportTest, AnF32ExportGivesTheLogitsOfItsSourceBitForBit) {
  const Export file = load_export(exported("f32"));
  Model model = widened(file);
  EXPECT_EQ(model.config, config_);
  EXPECT_EQ(model.step, 12);
  const auto before = logits(config_, parameters_);
  EXPECT_EQ(before, logits(model.config, model.parameters));
  EXPECT_EQ(before, logits(read_weights(file)));
}

TEST_F(ExportTest, WeightsAreReadAsNarrowAsTheyAreStoredAndStandForTheSameModel) {
  make_factors_ternary();
  for (const auto& [dtype, limit] :
       {std::pair<std::string, double>{"f32", 1e-5}, {"f16", 1e-5}, {"bf16", 2e-4}, {"int8", 5e-3}, {"ternary", 5e-3}}) {
    const Export file = load_export(exported(dtype));
    const Weights weights = read_weights(file);
    EXPECT_EQ(weights.path, file.path);
    const auto narrow = dtype == "int8"      ? ops::Narrow::int8
                        : dtype == "ternary" ? ops::Narrow::ternary
                        : dtype == "bf16"    ? ops::Narrow::bf16
                                             : ops::Narrow::f32;
    EXPECT_EQ(weights.readout.u.type(), narrow) << dtype;
    Model wide = widened(file);
    EXPECT_LT(largest_difference(logits(weights), logits(wide.config, wide.parameters)), limit) << dtype;
    EXPECT_EQ(weights_crc(file), weights_crc(wide.parameters, wide.config)) << dtype;
  }
}

TEST_F(ExportTest, TheChecksumOfTheWeightsIsOfEveryValueAndOfTheConfig) {
  const std::uint32_t before = weights_crc(parameters_, config_);
  EXPECT_EQ(before, weights_crc(load_export(exported("f32"))));
  for (Parameter* p : list(parameters_, config_)) {
    float& last = p->value.data<float>()[p->value.size() - 1];
    const float was = std::exchange(last, last + 1);
    EXPECT_NE(weights_crc(parameters_, config_), before) << p->name;
    last = was;
  }
  ModelConfig other = config_;
  other.norm_eps *= 2;
  EXPECT_NE(weights_crc(parameters_, other), before);
  EXPECT_EQ(weights_crc(parameters_, config_), before);
}

TEST_F(ExportTest, NarrowExportsStayNearTheirSource) {
  const auto before = logits(config_, parameters_);
  double last = 0;
  for (const auto& [dtype, limit] : {std::pair<std::string, double>{"f16", 0.02}, {"bf16", 0.2}, {"int8", 0.4}}) {
    Model model = widened(load_export(exported(dtype)));
    const double difference = largest_difference(before, logits(model.config, model.parameters));
    RecordProperty("largest_dlogit_" + dtype, std::to_string(difference));
    EXPECT_GT(difference, dtype == "int8" ? 0 : last) << dtype;
    EXPECT_LT(difference, limit) << dtype;
    last = difference;
  }
}

TEST_F(ExportTest, Int8NeverMovesAValueByMoreThanHalfAStepOfItsOutput) {
  const Export file = load_export(exported("int8"));
  const Model model = widened(file);
  auto parameters = model.parameters;
  const auto wide = list(parameters, config_), source = list(parameters_, config_);
  for (std::size_t i = 0; i < source.size(); ++i) {
    const auto& packed = file[source[i]->name];
    const auto recipe = recipe_of(*source[i], "int8");
    EXPECT_EQ(packed.shape.storage, recipe.storage) << source[i]->name;
    if (recipe.storage != Storage::int8) continue;
    const std::int64_t columns = source[i]->value.dim(1);
    for (std::int64_t j = 0; j < source[i]->value.size(); ++j) {
      const auto output = static_cast<std::size_t>(recipe.axis == Scales::rows ? j / columns : j % columns);
      ASSERT_LE(std::fabs(source[i]->value.at(j) - wide[i]->value.at(j)), 0.5001 * static_cast<double>(packed.scales[output]))
          << source[i]->name;
    }
  }
}

TEST_F(ExportTest, ScalesStandOncePerOutputOfAProduct) {
  EXPECT_EQ(recipe_of(parameters_.attention.q, "int8").axis, Scales::columns);
  EXPECT_EQ(recipe_of(parameters_.readout.u, "int8").axis, Scales::columns);
  EXPECT_EQ(recipe_of(parameters_.readout.v, "int8").axis, Scales::rows);
  EXPECT_EQ(recipe_of(parameters_.embedding, "int8").axis, Scales::rows);
  EXPECT_EQ(recipe_of(parameters_.engram.table, "int8").axis, Scales::rows);
  EXPECT_EQ(recipe_of(parameters_.engram.key, "int8").axis, Scales::columns);
  EXPECT_EQ(recipe_of(parameters_.iteration_embedding, "int8").storage, Storage::f32);
  EXPECT_EQ(recipe_of(parameters_.readout.s, "int8").storage, Storage::f32);
  EXPECT_EQ(recipe_of(parameters_.head.v, "int8").storage, Storage::bf16);
  EXPECT_EQ(recipe_of(parameters_.head.v, "ternary").storage, Storage::ternary);
  EXPECT_EQ(recipe_of(parameters_.attention.beta, "int8").storage, Storage::bf16);
  EXPECT_EQ(recipe_of(parameters_.embedding, "bf16").storage, Storage::bf16);
}

TEST_F(ExportTest, TernaryFactorsComeBackExactlyAndOthersOnlyWhenForced) {
  const std::string message = refusal([&] { exported("ternary"); });
  EXPECT_NE(message.find("--force"), std::string::npos) << message;
  EXPECT_NE(message.find("--dtype int8"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "ternary.dmexp"));
  const Model forced = widened(load_export(exported("ternary", true)));
  EXPECT_NE(forced.parameters.readout.u.value.at(0), parameters_.readout.u.value.at(0));
  make_factors_ternary();
  const Model model = widened(load_export(exported("ternary")));
  for (const auto& [now, before] :
       {std::pair{&model.parameters.readout, &parameters_.readout}, {&model.parameters.head, &parameters_.head}}) {
    for (std::int64_t i = 0; i < before->u.value.size(); ++i) ASSERT_EQ(now->u.value.at(i), before->u.value.at(i)) << i;
    for (std::int64_t i = 0; i < before->v.value.size(); ++i) ASSERT_EQ(now->v.value.at(i), before->v.value.at(i)) << i;
  }
}

TEST_F(ExportTest, AWeightOf70000IsRefusedInF16AndAcceptedInBf16) {
  parameters_.attention.a_log.value.data<float>()[1] = 70000;
  const std::string message = refusal([&] { exported("f16"); });
  EXPECT_NE(message.find("loop.attention.a_log holds 70000 at element 1"), std::string::npos) << message;
  EXPECT_NE(message.find("--dtype bf16"), std::string::npos) << message;
  EXPECT_EQ(widened(load_export(exported("bf16"))).parameters.attention.a_log.value.at(1), 70144);
}

TEST_F(ExportTest, AConfigThatIsNotThatOfTheTensorsIsRefused) {
  // The image as it is, with another config, list or order: both checksums are those of the tampered file.
  const auto tampered = [&](const auto& change) {
    format::DmexpImage image = export_image(parameters_, config_, provenance_, "bf16");
    change(image.header);
    const auto path = folder_ / "tampered.dmexp";
    try {
      format::write_dmexp(path, image);
    } catch (const base::Error& error) {
      return std::string(error.what());
    }
    return refusal([&] { (void)load_export(path); });
  };
  const auto with_config = [&](const auto& change) {
    ModelConfig other = config_;
    change(other);
    return tampered([&](format::DmexpHeader& header) { header.config = config::write_table(other); });
  };
  EXPECT_EQ(tampered([](format::DmexpHeader&) {}), "accepted");
  EXPECT_NE(with_config([](ModelConfig& c) { c.d_model = 26; }).find("embedding.weight is [256, 24] but its config says [256, 26]"),
            std::string::npos);
  EXPECT_NE(with_config([](ModelConfig& c) { c.max_iter = 4; }).find("loop.iteration_embedding"), std::string::npos);
  EXPECT_NE(with_config([](ModelConfig& c) { c.n_experts = 3; }).find("missing"), std::string::npos);
  EXPECT_NE(with_config([](ModelConfig& c) { c.n_experts = 1; }).find("loop.controller.weight"), std::string::npos);
  EXPECT_NE(with_config([](ModelConfig& c) { c.use_engram = false; }).find("loop.readout.u stands at place"), std::string::npos);
  EXPECT_NE(with_config([](ModelConfig& c) { c.equations = 9; }).find("equations"), std::string::npos);
  EXPECT_NE(with_config([](ModelConfig& c) { c.n_heads = 5; }).find("divide"), std::string::npos);
  EXPECT_NE(with_config([](ModelConfig& c) { c.norm_eps = 7; }).find("norm_eps"), std::string::npos);
  // Shapes of a config of many terabytes are compared, not allocated.
  EXPECT_NE(with_config([](ModelConfig& c) {
              c.d_model = 65536;
              c.n_heads = 1;
              c.d_ffn = 1048576;
              c.engram_rows = 1 << 30;
              c.engram_dim = 4096;
              c.n_experts = 4096;
            }).find("embedding.weight"),
            std::string::npos);
  EXPECT_NE(tampered([](format::DmexpHeader& h) { h.config = "[model]\nd_model = 3\n"; }), "accepted");
  EXPECT_NE(tampered([](format::DmexpHeader& h) { h.config += "colour = \"red\"\n"; }).find("colour"), std::string::npos);
  EXPECT_NE(tampered([](format::DmexpHeader& h) { h.config = ""; }), "accepted");
  EXPECT_NE(tampered([](format::DmexpHeader& h) { std::swap(h.tensors[6].name, h.tensors[7].name); }).find("order"), std::string::npos);
  EXPECT_NE(tampered([](format::DmexpHeader& h) { h.tensors[3].name = "loop.norm.bias"; }).find("loop.norm.weight is missing"),
            std::string::npos);
  EXPECT_NE(tampered([](format::DmexpHeader& h) { h.tensors[5].shape.dims = {12, 48}; }).find("[12, 48]"), std::string::npos);
}

TEST_F(ExportTest, ATensorMoreThanItsConfigAsksForIsRefused) {
  std::vector<format::DmexpTensor> tensors;
  for_each(parameters_, config_, [&](Parameter& p) { tensors.push_back({p.name, p.value, Storage::f32, Scales::none}); });
  tensors.push_back({"aux.future_byte.bias", tensor::Tensor::zeros({3}, tensor::Dtype::f32), Storage::f32, Scales::none});
  const auto path = folder_ / "more.dmexp";
  format::write_dmexp(
      path,
      format::narrow({.dtype = "f32", .source = "x@step1", .step = 1, .bpb = {}, .window = {}, .config = config::write_table(config_)},
                     tensors));
  EXPECT_NE(refusal([&] { (void)load_export(path); }).find("aux.future_byte.bias does not belong"), std::string::npos);
}

TEST_F(ExportTest, InterchangeHoldsThePublicNamesAndReadsBack) {
  const auto path = folder_ / "x.safetensors";
  for (const std::string dtype : {"f32", "f16", "bf16"}) {
    const auto bytes = write_interchange(path, parameters_, config_, provenance_, dtype);
    EXPECT_EQ(bytes, std::filesystem::file_size(path));
    const format::SafetensorsFile file(path);
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_NE(file.find("loop.readout.u"), nullptr);
    const Model model = load_model(path);
    EXPECT_EQ(model.config, config_);
    EXPECT_EQ(model.step, 12);
    const Model same = widened(load_export(exported(dtype)));
    auto a = model.parameters, b = same.parameters;
    const auto left = list(a, config_), right = list(b, config_);
    for (std::size_t i = 0; i < left.size(); ++i)
      for (std::int64_t j = 0; j < left[i]->value.size(); ++j) ASSERT_EQ(left[i]->value.at(j), right[i]->value.at(j)) << left[i]->name;
  }
  EXPECT_NE(refusal([&] { write_interchange(path, parameters_, config_, provenance_, "int8"); }).find("--dtype"), std::string::npos);
}

TEST_F(ExportTest, GgufHoldsFactorsTransposedAndTernaryOnesInBlocks) {
  const auto path = folder_ / "x.gguf";
  write_model_gguf(path, parameters_, config_, provenance_, "bf16");
  const format::GgufFile file(path);
  for (const auto& entry : file.entries()) {
    if (entry.name != "loop.readout.u") continue;
    EXPECT_EQ(entry.dims, (std::vector<std::int64_t>{6, 24}));
    EXPECT_EQ(entry.type_name, "BF16");
    const auto values = file.read(entry);
    const auto& u = parameters_.readout.u.value;
    for (std::int64_t k = 0; k < 6; ++k)
      for (std::int64_t i = 0; i < 24; ++i) ASSERT_NEAR(values[static_cast<std::size_t>(k * 24 + i)], u.at(i * 6 + k), 1e-2);
  }
  EXPECT_NE(refusal([&] { write_model_gguf(path, parameters_, config_, provenance_, "ternary", true); }).find("blocks of 256"),
            std::string::npos);
  EXPECT_NE(refusal([&] { write_model_gguf(path, parameters_, config_, provenance_, "f16"); }).find("bf16 or ternary"), std::string::npos);

  config_.d_model = 256;
  config_.d_ffn = 512;
  parameters_ = make_parameters(config_, 4);
  EXPECT_NE(refusal([&] { write_model_gguf(path, parameters_, config_, provenance_, "ternary"); }).find("--force"), std::string::npos);
  // One scale in all of a factor: exact but for the rounding of that scale to f16.
  for_each(parameters_, config_, [](Parameter& p) {
    if (p.kind != tensor::Kind::factor_in && p.kind != tensor::Kind::factor_out) return;
    float* w = p.value.data<float>();
    for (std::int64_t i = 0; i < p.value.size(); ++i) w[i] = w[i] > 0.03F ? 0.125F : (w[i] < -0.03F ? -0.125F : 0);
  });
  write_model_gguf(path, parameters_, config_, provenance_, "ternary");
  const format::GgufFile ternary(path);
  for (const auto& entry : ternary.entries()) {
    if (entry.name != "head.v") continue;
    EXPECT_EQ(entry.type_name, "TQ2_0");
    const auto values = ternary.read(entry);
    for (std::int64_t k = 0; k < 6; ++k)
      for (std::int64_t o = 0; o < 256; ++o)
        ASSERT_EQ(values[static_cast<std::size_t>(k * 256 + o)], parameters_.head.v.value.at(o * 6 + k));
  }
}

TEST_F(ExportTest, ARunDirectoryMeansItsModelUnlessThatIsMissingOrOld) {
  const auto run = folder_ / "a run";
  std::filesystem::create_directories(run);
  EXPECT_NE(refusal([&] { (void)load_export(run); }).find("without model.dmexp or checkpoint.safetensors"), std::string::npos);
  const auto save = [&](const std::string& name, const std::string& step, ModelConfig config) {
    format::write_safetensors(run / name, model_tensors(parameters_, config_),
                              {{"dormouse.kind", "checkpoint"}, {"step", step}, {"config", "[model]\n" + config::write_table(config)}});
  };
  save("checkpoint.safetensors", "12", config_);
  EXPECT_NE(refusal([&] { (void)load_export(run); }).find("has no model.dmexp; write it: dormouse export '" + run.string() + "'"),
            std::string::npos);
  format::write_dmexp(run / "model.dmexp", export_image(parameters_, config_, provenance_, "bf16"));
  EXPECT_EQ(load_export(run).path, run / "model.dmexp");
  save("checkpoint.safetensors", "30", config_);
  const std::string stale = refusal([&] { (void)load_export(run); });
  EXPECT_NE(stale.find("is of step 12, and checkpoint.safetensors beside it of step 30"), std::string::npos) << stale;
  EXPECT_NE(stale.find("dormouse export '" + run.string() + "'"), std::string::npos) << stale;
  ModelConfig other = config_;
  other.fin_weight = 2;
  save("checkpoint.safetensors", "12", other);
  EXPECT_NE(refusal([&] { (void)load_export(run); }).find("another model"), std::string::npos);
  // Made of best.safetensors: that is what it is compared with.
  save("checkpoint.safetensors", "30", config_);
  save("best.safetensors", "12", config_);
  provenance_.source = "best.safetensors";
  format::write_dmexp(run / "model.dmexp", export_image(parameters_, config_, provenance_, "bf16"));
  EXPECT_EQ(load_export(run).header.source, "best.safetensors@step12");
  save("best.safetensors", "20", config_);
  EXPECT_NE(refusal([&] { (void)load_export(run); }).find("--best"), std::string::npos);
  // A checkpoint is not an export, whatever is asked.
  const std::string message = refusal([&] { (void)load_export(run / "checkpoint.safetensors"); });
  EXPECT_NE(message.find("is a training checkpoint"), std::string::npos) << message;
}

}  // namespace
}  // namespace dormouse::network
