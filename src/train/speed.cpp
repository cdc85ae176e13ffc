#include "train/speed.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"
#include "network/dormouse/flops.h"
#include "train/plan.h"
#include "train/step.h"

namespace dormouse::train {
namespace {

using base::Clock;
using base::seconds_since;

constexpr double kMilli = 1e3, kGiga = 1e9;

// Letters and blanks, the frequent ones many times as frequent as the rare: as many different memory rows as a text of this length.
data::Batch made_up_batch(const TrainConfig& train, base::SplitMix64& random) {
  data::Batch batch{.rows = train.batch, .seq_len = train.seq_len, .bytes = {}};
  batch.bytes.resize(static_cast<std::size_t>(batch.rows * (batch.seq_len + 1)));
  for (auto& byte : batch.bytes) {
    const double x = random.uniform();
    byte = static_cast<std::uint8_t>('a' - 1 + static_cast<int>(27 * x * x));
    if (byte < 'a') byte = ' ';
  }
  return batch;
}

StepData made_up_step(const RunConfig& config, base::SplitMix64& random) {
  std::vector<data::Batch> batches;
  for (std::int64_t i = 0; i < config.train.accum; ++i) batches.push_back(made_up_batch(config.train, random));
  return make_step_data(batches, config.model);
}

// GFLOP/s of one large product, the best of a few.
class GemmLimit {
 public:
  explicit GemmLimit(ops::Compute compute) : shape_{kSide, kSide, kSide, kSide, kSide, kSide} { shape_.compute = compute; }
  double measure() {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const auto start = Clock::now();
      ops::cpu_table().gemm(shape_, a_.data<float>(), b_.data<float>(), c_.data<float>());
      best = std::min(best, seconds_since(start));
    }
    return 2.0 * kSide * kSide * kSide / best / kGiga;
  }

 private:
  static constexpr std::int64_t kSide = 1536;
  static tensor::Tensor square() {
    auto x = tensor::Tensor::empty({kSide, kSide}, tensor::Dtype::f32);
    std::fill_n(x.data<float>(), x.size(), 0.5F);
    return x;
  }
  ops::Gemm shape_;
  tensor::Tensor a_ = square(), b_ = square(), c_ = square();
};

// Values of every repeat by row of the table.
class Samples {
 public:
  void add(std::string_view name, double forward, double backward) {
    auto at = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.name == name; });
    if (at == rows_.end()) at = rows_.insert(rows_.end(), {std::string(name), {}, {}});
    at->forward.push_back(kMilli * forward);
    at->backward.push_back(kMilli * backward);
  }
  std::vector<StageSpeed> stages() const {
    std::vector<StageSpeed> all;
    for (const auto& row : rows_) all.push_back({row.name, decode::spread_of(row.forward), decode::spread_of(row.backward)});
    return all;
  }

 private:
  struct Row {
    std::string name;
    std::vector<double> forward, backward;
  };
  std::vector<Row> rows_;
};

}  // namespace

TrainSpeed measure_training(const RunConfig& config, std::int64_t repeats) {
  refuse_above(plan_memory(config, 0), base::available_memory());
  constexpr int kWarm = 2;
  const auto begin = Clock::now();
  TrainSpeed speed;
  base::SplitMix64 random(1);
  Trainer trainer(config, network::make_parameters(config.model, 1));
  GemmLimit limit(compute_of(config.train.compute));

  const auto bytes = static_cast<double>(config.train.batch * config.train.seq_len * config.train.accum);
  const auto flops = network::flops_per_position(config.model);
  for (const auto& part : flops) speed.gflop += 3 * part.forward * bytes / kGiga;

  Samples samples;
  std::vector<double> steps, rates, gflops, limits;
  for (std::int64_t i = -kWarm; i < repeats; ++i) {
    if (i >= 0) limits.push_back(limit.measure());
    StepSeconds parts;
    const auto start = Clock::now();
    const StepData data = made_up_step(config, random);
    const double data_seconds = seconds_since(start);
    if (!trainer.step(data, {1e-3, 1e-3}, false, &parts).applied)
      throw base::Error("a step was not finite and changed nothing, so its time says nothing; leave out --set, or use --compute f32");
    const double seconds = seconds_since(start);
    if (i == -kWarm) speed.start_seconds = seconds_since(begin);
    if (i < 0) continue;
    samples.add("data", data_seconds, 0);
    for (const auto& stage : parts.stages) samples.add(stage.name.empty() ? "loop" : stage.name, stage.forward, stage.backward);
    samples.add("update", parts.update, 0);
    samples.add("retraction", parts.retraction, 0);
    steps.push_back(kMilli * seconds);
    rates.push_back(bytes / seconds);
    gflops.push_back(speed.gflop / seconds);
  }
  speed.stages = samples.stages();
  for (auto& stage : speed.stages) {
    for (const auto& part : flops)
      if (part.stage == stage.name || (part.stage.empty() && stage.name == "loop")) stage.gflop = 3 * part.forward * bytes / kGiga;
  }
  speed.step = decode::spread_of(steps);
  speed.bytes_per_second = decode::spread_of(rates);
  speed.gflops = decode::spread_of(gflops);
  speed.limit = decode::spread_of(limits);
  return speed;
}

}  // namespace dormouse::train
