#include "train/fingerprint.h"

#include <algorithm>
#include <string_view>

#include "base/hash.h"
#include "base/threads.h"
#include "decode/lanes.h"
#include "network/dormouse/weights.h"
#include "ops/cpu_level.h"
#include "train/step.h"

namespace dormouse::train {
namespace {

RunConfig small_config() {
  RunConfig config;
  auto& model = config.model;
  model.d_model = 64;
  model.n_heads = 2;
  model.head_dim = 32;
  model.d_ffn = 128;
  model.rank = 16;
  model.n_experts = 2;
  model.max_iter = 2;
  model.max_seq_len = 20;
  model.engram_rows = 256;
  config.train.batch = 2;
  config.train.seq_len = model.max_seq_len;
  config.train.compute = "f32";
  return config;
}

std::vector<std::uint8_t> some_text(std::size_t size) {
  std::vector<std::uint8_t> text(size);
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<std::uint8_t>(i * i * 7 + i / 5);
  return text;
}

std::uint64_t hash_of(const float* x, std::int64_t n, std::uint64_t basis) {
  return base::fnv1a({reinterpret_cast<const char*>(x), static_cast<std::size_t>(n) * sizeof(float)}, basis);
}

StepData step_data(const RunConfig& config) {
  data::Batch batch{.rows = config.train.batch, .seq_len = config.train.seq_len, .bytes = {}};
  batch.bytes = some_text(static_cast<std::size_t>(batch.rows * (batch.seq_len + 1)));
  return make_step_data({batch}, config.model);
}

void compute(Fingerprint& print) {
  const RunConfig config = small_config();
  Trainer trainer(config, network::make_parameters(config.model, 1));
  const auto weights = network::read_weights(trainer.parameters(), config.model);
  decode::Lanes lanes(weights, 1);
  print.decoding = base::kFnvBasis;
  const auto text = some_text(50);
  lanes.read(0, text, [&](std::span<const float> logits) {
    print.decoding = hash_of(logits.data(), static_cast<std::int64_t>(logits.size()), print.decoding);
  });
  const StepData data = step_data(config);
  for (int i = 0; i < 3; ++i) trainer.step(data, {1e-2, 1e-2}, false);
  print.training = base::kFnvBasis;
  for (auto* parameter : network::list(trainer.parameters(), config.model))
    print.training = hash_of(parameter->value.data<float>(), parameter->value.size(), print.training);
}

}  // namespace

std::vector<Fingerprint> fingerprints(int most_threads) {
  const std::string level_before = ops::cpu_level();
  const int threads_before = base::threads();
  std::vector<Fingerprint> all;
  auto levels = ops::available_cpu_levels();
  std::reverse(levels.begin(), levels.end());  // oneDNN keeps the level it is first used at
  for (const auto& level : levels) {
    ops::set_cpu_level(level);
    for (int threads = 1; threads <= most_threads; ++threads) {
      base::set_threads(threads);
      Fingerprint print{.cpu_level = level, .gemm = ops::gemm_library(), .threads = threads};
      compute(print);
      all.push_back(print);
    }
  }
  ops::set_cpu_level(level_before);
  base::set_threads(threads_before);
  return all;
}

}  // namespace dormouse::train
