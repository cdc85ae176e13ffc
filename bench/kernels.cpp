// One benchmark a kernel of the CPU column, one thread, at the sizes of a nano step of 512 positions, with GFLOP/s and GB/s:
//
//   bench_kernels [--floors] [flags of Google Benchmark, for example --benchmark_filter=kda]
//
// --floors: exit 1 when a kernel is slower than its floor. A floor is a share of what the same run reached: of one large matrix product
// for kernels made of products, of axpy for those that stream. It is a quarter of what was measured, so that a busy machine passes and a
// kernel that lost its vectors, or its order in memory, does not.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "ops/cpu_level.h"
#include "ops/ops.h"

namespace dormouse::ops {
namespace {

constexpr std::int64_t kRows = 512, kD = 512, kHeads = 8, kHeadDim = 64, kHidden = 2048, kRank = 96, kExperts = 3, kGates = 3 + kExperts;
constexpr std::int64_t kElements = kRows * kD;

enum class Limit : std::uint8_t { product, stream };

struct Kernel {
  std::string name;
  Limit limit = Limit::stream;
  double floor = 0;  // share of the limit
  double work = 0;   // product: floating point operations of a call; stream: bytes read and written
  std::function<void()> call;
};

// Values that live as long as the program, ordinary numbers whose step does not overflow when a kernel accumulates into them for seconds.
float* values(std::int64_t n, double deviation = 0.5) {
  static base::SplitMix64 random(1);
  static std::vector<std::vector<float>> all;
  auto& one = all.emplace_back(static_cast<std::size_t>(n));
  for (float& x : one) x = static_cast<float>(deviation * random.normal());
  return one.data();
}

float* negative(std::int64_t n) {
  float* x = values(n);
  for (std::int64_t i = 0; i < n; ++i) x[i] = -std::abs(x[i]);
  return x;
}

// Unit rows of a head, as keys and queries are.
float* unit() {
  float* x = values(kElements);
  float* inv = values(kRows * kHeads);
  float* y = values(kElements);
  cpu_table().silu_head_norm({.rows = kRows * kHeads, .head_dim = kHeadDim, .eps = 1e-6}, x, y, inv);
  return y;
}

// Streams of f32: how often an array of kElements is read or written.
constexpr double arrays(double n) { return n * kElements * sizeof(float); }

void add_products(std::vector<Kernel>& all) {
  const auto& t = cpu_table();
  const auto gemm = [&](const char* name, const OpTable<float>& table, double floor, std::int64_t m, std::int64_t n, std::int64_t k,
                        Compute compute = Compute::f32) {
    const Gemm size{.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n, .compute = compute};
    all.push_back({name, Limit::product, floor, 2.0 * static_cast<double>(m * n * k),
                   [&table, size, a = values(m * k), b = values(k * n), c = values(m * n)] { table.gemm(size, a, b, c); }});
  };
  gemm("gemm_large", t, 0, 768, 768, 768);  // the limit itself
  gemm("gemm_projection", t, 0.25, kRows, kD, kD);
  gemm("gemm_rank", t, 0.24, kRows, kRank, kHidden);
  if (native_i16()) {
    gemm("gemm_i16_projection", t, 0.4, kRows, kD, kD, Compute::i16);
    gemm("gemm_i16_rank", t, 0.31, kRows, kRank, kHidden, Compute::i16);
  }
  gemm("gemm_own", cpu_table(true), 0.22, kRows, kD, kD);

  const Hidden hidden{.rows = kRows, .k = kRank, .f = kHidden, .r = kRank};
  const double hidden_flops = 2.0 * kRows * kHidden * (2 * kRank);
  float *x = values(kRows * kRank), *v = values(kHidden * kRank, 0.1), *u = values(kHidden * kRank, 0.1), *y = values(kRows * kRank);
  float *dx = values(kRows * kRank), *dv = values(kHidden * kRank), *du = values(kHidden * kRank);
  all.push_back({"hidden", Limit::product, 0.20, hidden_flops, [=, &t] { t.hidden(hidden, x, v, u, y); }});
  all.push_back(
      {"hidden_backward", Limit::product, 0.22, 2.5 * hidden_flops, [=, &t] { t.hidden_backward(hidden, x, v, u, y, dx, dv, du); }});

  const CrossEntropy loss{.rows = kRows, .k = kRank, .classes = 256};
  const double loss_flops = 2.0 * kRows * kRank * 256;
  float *head = values(256 * kRank), *nats = values(kRows), *lse = values(kRows), *dhead = values(256 * kRank);
  static const std::vector<std::uint8_t> target(kRows, 'e');
  all.push_back({"cross_entropy", Limit::product, 0.16, loss_flops, [=, &t] { t.cross_entropy(loss, x, head, target.data(), nats, lse); }});
  t.cross_entropy(loss, x, head, target.data(), nats, lse);
  all.push_back({"cross_entropy_backward", Limit::product, 0.12, 3 * loss_flops,
                 [=, &t] { t.cross_entropy_backward(loss, x, head, target.data(), lse, y, dx, dhead); }});

  // In a chunk of C rows, per row and head: the state read twice and written once, five products with the other rows (network/flops.cpp).
  const Kda kda{.batch = 1, .time = kRows, .heads = kHeads, .head_dim = kHeadDim};
  const double kda_flops = 2.0 * kElements * (3 * kHeadDim + 5 * kKdaChunk);
  float *q = unit(), *k = unit(), *val = values(kElements), *g = negative(kElements), *o = values(kElements);
  float* beta = values(kRows * kHeads);
  for (std::int64_t i = 0; i < kRows * kHeads; ++i) beta[i] = 0.5F;
  float *state = values(kHeads * kHeadDim * kHeadDim), *chunks = values(kHeads * (kRows / kKdaChunk) * kHeadDim * kHeadDim);
  float *dq = values(kElements), *dk = values(kElements), *dval = values(kElements), *dg = values(kElements),
        *dbeta = values(kRows * kHeads);
  all.push_back({"kda", Limit::product, 0.07, kda_flops, [=, &t] { t.kda(kda, q, k, val, g, beta, nullptr, o, nullptr, chunks); }});
  t.kda(kda, q, k, val, g, beta, nullptr, o, nullptr, chunks);
  all.push_back({"kda_backward", Limit::product, 0.11, 2 * kda_flops,
                 [=, &t] { t.kda_backward(kda, q, k, val, g, beta, chunks, val, nullptr, dq, dk, dval, dg, dbeta, nullptr); }});
  all.push_back(
      {"kda_step", Limit::product, 0.05, 2.0 * kElements * 3 * kHeadDim, [=, &t] { t.kda_step(kda, q, k, val, g, beta, state, o); }});
}

// Decoding's products of one row: the weights are read once.
void add_narrow(std::vector<Kernel>& all) {
  static std::vector<NarrowMatrix> matrices;
  const std::vector<float> scales(kD, 0.01F);
  const std::vector<std::int8_t> codes(kElements, 1);
  const std::vector<std::uint16_t> halves(kElements, 0x3F00);
  matrices.emplace_back(kD, kD, values(kElements), Stored::straight);
  matrices.emplace_back(kD, kD, halves.data(), Stored::straight);
  matrices.emplace_back(Narrow::int8, kD, kD, codes.data(), Stored::straight, scales);
  matrices.emplace_back(Narrow::ternary, kD, kD, codes.data(), Stored::straight, scales);
  const float* x = values(kD);
  float* y = values(kD);
  for (const auto& [index, floor] : {std::pair{0, 0.3}, {1, 0.25}, {2, 0.12}, {3, 0.025}}) {
    const NarrowMatrix* w = &matrices[static_cast<std::size_t>(index)];
    all.push_back({"products_" + std::string(name_of(w->type())), Limit::stream, floor, static_cast<double>(w->bytes()), [=] {
                     const Product<float> one{w, x, y};
                     cpu_table(true).products(1, {&one, 1}, Sweep::forward);
                   }});
  }
}

void add_streams(std::vector<Kernel>& all) {
  const auto& t = cpu_table();
  const auto add = [&](const char* name, double floor, double bytes, std::function<void()> call) {
    all.push_back({name, Limit::stream, floor, bytes, std::move(call)});
  };
  float *x = values(kElements), *y = values(kElements), *z = values(kElements), *u = values(kElements), *m = values(kElements);
  float *dx = values(kElements), *dy = values(kElements), *dz = values(kElements), *du = values(kElements), *dm = values(kElements);
  float *row = values(kD), *drow = values(kD), *inv = values(kRows * kHeads), *head = values(kHeadDim), *dhead = values(kHeadDim);
  add("axpy", 0, arrays(3), [=, &t] { t.axpy(kElements, 1e-9F, x, y); });  // the limit itself
  add("add_row", 0.14, arrays(2), [=, &t] { t.add_row(kRows, kD, x, row, y); });
  add("add_row_backward", 0.18, arrays(3), [=, &t] { t.add_row_backward(kRows, kD, dy, dx, drow); });
  add("silu", 0.06, arrays(2), [=, &t] { t.silu(kElements, x, y); });
  add("silu_backward", 0.09, arrays(4), [=, &t] { t.silu_backward(kElements, x, dy, dx); });

  const RmsNorm norm{.rows = kRows, .d = kD, .eps = 1e-3};
  add("rms_norm", 0.12, arrays(2), [=, &t] { t.rms_norm(norm, x, row, y, inv); });
  add("rms_norm_backward", 0.11, arrays(4), [=, &t] { t.rms_norm_backward(norm, x, row, inv, dy, dx, drow); });
  const HeadNorm unit{.rows = kRows * kHeads, .head_dim = kHeadDim, .eps = 1e-6};
  add("silu_head_norm", 0.04, arrays(2), [=, &t] { t.silu_head_norm(unit, x, y, inv); });
  add("silu_head_norm_backward", 0.09, arrays(5), [=, &t] { t.silu_head_norm_backward(unit, x, y, inv, dy, dx); });
  const GatedHeadNorm gated{.rows = kRows * kHeads, .head_dim = kHeadDim, .eps = 1e-5};
  add("gated_head_norm", 0.07, arrays(3), [=, &t] { t.gated_head_norm(gated, x, z, head, y, inv); });
  add("gated_head_norm_backward", 0.07, arrays(7), [=, &t] { t.gated_head_norm_backward(gated, x, z, head, inv, dy, dx, dz, dhead); });
  const Decay decay{.rows = kRows, .heads = kHeads, .head_dim = kHeadDim};
  float *a_log = values(kHeads), *da_log = values(kHeads);
  add("decay", 0.05, arrays(2), [=, &t] { t.decay(decay, x, a_log, row, y); });
  add("decay_backward", 0.11, arrays(5), [=, &t] { t.decay_backward(decay, x, a_log, row, y, dy, dx, da_log, drow); });

  const Gates gates{.rows = kRows, .experts = kExperts, .width = 8, .lam_max = 0.5};
  float *c = values(kRows * 8), *gate = values(kRows * kGates), *dc = values(kRows * 8), *dgate = values(kRows * kGates);
  const double gate_bytes = kRows * (8.0 + kGates) * sizeof(float);
  add("gates", 0.008, gate_bytes, [=, &t] { t.gates(gates, c, gate); });
  t.gates(gates, c, gate);
  add("gates_backward", 0.06, 2 * gate_bytes, [=, &t] { t.gates_backward(gates, c, gate, dgate, dc); });
  const EngramRead read{.rows = kRows, .d = kD, .eps = 1e-5};
  float* saved = values(kRows * 4);
  add("engram_read", 0.09, arrays(4), [=, &t] { t.engram_read(read, x, z, u, y, saved); });
  add("engram_read_backward", 0.12, arrays(10), [=, &t] { t.engram_read_backward(read, x, z, u, saved, dy, dx, dz, du); });
  const Residual sum{.rows = kRows, .d = kD, .gate_width = kGates};
  float *rho = values(1), *drho = values(1), *h = values(kElements), *f = values(kElements), *df = values(kElements);
  add("residual", 0.09, arrays(6), [=, &t] { t.residual(sum, u, rho, gate, x, m, z, f, h); });
  add("residual_backward", 0.12, arrays(15),
      [=, &t] { t.residual_backward(sum, rho, gate, x, m, z, f, dy, du, drho, dgate, dx, dm, dz, df); });

  static const std::vector<std::uint32_t> index = [] {
    base::SplitMix64 random(2);
    std::vector<std::uint32_t> drawn(kRows * 3);
    for (auto& one : drawn) one = static_cast<std::uint32_t>(random.below(32768));
    return drawn;
  }();
  float *table = values(32768 * 32), *rows = values(kRows * 96);
  const double gathered = 2.0 * kRows * 96 * sizeof(float);
  add("gather", 0.13, gathered, [=, &t] { t.gather(kRows * 3, 32, index.data(), table, rows); });
  add("gather_backward", 0.16, 1.5 * gathered, [=, &t] { t.gather_backward(kRows * 3, 32, index.data(), rows, table); });

  add("sum_squares", 0.17, arrays(1), [=, &t] { benchmark::DoNotOptimize(t.sum_squares(kElements, x)); });
  add("normalize_columns", 0.22, arrays(3), [=, &t] { t.normalize_columns(kRows, kD, 1e-7F, m); });
  add("normalize_rows", 0.25, arrays(3), [=, &t] { t.normalize_rows(kRows, kD, 1e-7F, m); });
  float *moment = values(kElements, 1e-3), *square = values(kElements, 0), *w = values(kElements);
  add("adamw", 0.10, arrays(7), [=, &t] { t.adamw(kElements, 1e-6F, 0.9F, 0.95F, 1e-8F, 0.0F, 0.1F, 0.05F, 1.0F, dy, moment, square, w); });
}

// What the console reporter prints, and beside it the best rate of every kernel.
class Rates : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      for (const auto& [name, counter] : run.counters)
        best_[run.run_name.function_name] = std::max(best_[run.run_name.function_name], counter.value);
    }
    benchmark::ConsoleReporter::ReportRuns(runs);
  }
  double best(const std::string& kernel) const {
    const auto found = best_.find(kernel);
    return found == best_.end() ? 0 : found->second;
  }

 private:
  std::map<std::string, double> best_;
};

// How many kernels are below their floor, or were not run.
int below_floor(const std::vector<Kernel>& kernels, const Rates& rates) {
  int below = 0;
  const double product = rates.best("gemm_large"), stream = rates.best("axpy");
  for (const Kernel& kernel : kernels) {
    const double limit = kernel.limit == Limit::product ? product : stream;
    const double share = limit > 0 ? rates.best(kernel.name) / limit : 0;
    const bool slow = !(share >= kernel.floor) || share == 0;
    below += slow ? 1 : 0;
    std::printf("%-26s %6.3f of the limit, floor %.3f%s\n", kernel.name.c_str(), share, kernel.floor, slow ? "  BELOW" : "");
  }
  return below;
}

int run(int argc, char** argv) {
  const auto floors_flag = std::find_if(argv + 1, argv + argc, [](const char* arg) { return std::string_view(arg) == "--floors"; });
  const bool floors = floors_flag != argv + argc;
  if (floors) {
    std::copy(floors_flag + 1, argv + argc, floors_flag);
    --argc;
  }
  base::set_threads(1);
  std::vector<Kernel> kernels;
  add_products(kernels);
  add_narrow(kernels);
  add_streams(kernels);
  for (const Kernel& kernel : kernels) {
    benchmark::RegisterBenchmark(kernel.name.c_str(), [&kernel](benchmark::State& state) {
      kernel.call();  // what the first call makes, oneDNN's code and the threads, is not its speed
      for (auto _ : state) {
        kernel.call();
        benchmark::ClobberMemory();
      }
      state.counters[kernel.limit == Limit::product ? "FLOP/s" : "B/s"] =
          benchmark::Counter(kernel.work, benchmark::Counter::kIsIterationInvariantRate);
    });
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Rates rates;
  benchmark::RunSpecifiedBenchmarks(&rates);
  if (!floors) return 0;
  const int below = below_floor(kernels, rates);
  std::printf("%d of %zu kernels below their floor\n", below, kernels.size());
  return below == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dormouse::ops

int main(int argc, char** argv) { return dormouse::ops::run(argc, argv); }
