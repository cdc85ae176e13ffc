// GEMM through oneDNN. f32: dnnl_sgemm, or a matmul primitive where that is faster; bf16: matmul primitives on rounded copies.
// Why which: docs/decisions/0001-gemm.md
#ifdef DORMOUSE_ONEDNN

#include <dnnl.hpp>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "base/error.h"
#include "ops/cpu/gemm_symmetric.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"

namespace dormouse::ops::cpu {
namespace {

[[noreturn]] void fail(const Gemm& g, std::string_view what, std::string_view message) {
  throw base::Error("oneDNN " + std::string(what) + " failed for m=" + std::to_string(g.m) + " n=" + std::to_string(g.n) +
                    " k=" + std::to_string(g.k) + " (" + std::string(message) + "); build with -DDORMOUSE_ONEDNN=OFF to do without it");
}

void sgemm(const Gemm& g, const float* a, const float* b, float* c) {
  const dnnl_status_t status = dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, 1.0f, a, g.lda, b, g.ldb,
                                          g.accumulate ? 1.0f : 0.0f, c, g.ldc);
  if (status != dnnl_success) fail(g, "sgemm", "status " + std::to_string(status));
}

struct Matmul {
  dnnl::matmul primitive;
  dnnl::memory::desc a, b, c, workspace;
};

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

Matmul make_matmul(const Gemm& g) {
  using Type = dnnl::memory::data_type;
  const Type input = g.compute == Compute::bf16 ? Type::bf16 : Type::f32;
  const auto desc = [](std::int64_t rows, std::int64_t cols, Type type, bool transposed, std::int64_t ld) {
    return dnnl::memory::desc({rows, cols}, type, transposed ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1});
  };
  const auto a = desc(g.m, g.k, input, g.transpose_a, g.lda);
  const auto b = desc(g.k, g.n, input, g.transpose_b, g.ldb);
  const auto c = desc(g.m, g.n, Type::f32, false, g.ldc);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (g.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine());
  return {dnnl::matmul(description), a, b, c, description.scratchpad_desc()};
}

// m, n, k, leading dimensions, flags, threads (a primitive is compiled for a team size)
using Key = std::array<std::int64_t, 8>;

Matmul cached_matmul(const Gemm& g) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static std::map<Key, Matmul> cache;
  constexpr std::size_t kMost = 4096;
  const std::int64_t flags =
      (g.transpose_a ? 1 : 0) + (g.transpose_b ? 2 : 0) + (g.accumulate ? 4 : 0) + (g.compute == Compute::bf16 ? 8 : 0);
  const Key key{g.m, g.n, g.k, g.lda, g.ldb, g.ldc, flags, team_size()};
  const auto found = cache.find(key);
  if (found != cache.end()) return found->second;
  if (cache.size() >= kMost) cache.clear();
  return cache.emplace(key, make_matmul(g)).first->second;
}

// a and b: f32 or bf16, as g.compute says. Threads may meet here: a primitive with a scratchpad of the caller holds no state.
void matmul(const Gemm& g, const void* a, const void* b, float* c) {
  const auto memory = [](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, engine(), const_cast<void*>(data));  // NOLINT: oneDNN only reads its sources
  };
  try {
    static thread_local dnnl::stream stream(engine());
    const Matmul cached = cached_matmul(g);
    const void* workspace = scratch_bytes(Slot::onednn, cached.workspace.get_size());
    cached.primitive.execute(stream, {{DNNL_ARG_SRC, memory(cached.a, a)},
                                      {DNNL_ARG_WEIGHTS, memory(cached.b, b)},
                                      {DNNL_ARG_DST, memory(cached.c, c)},
                                      {DNNL_ARG_SCRATCHPAD, memory(cached.workspace, workspace)}});
    stream.wait();
  } catch (const dnnl::error& error) {
    fail(g, "matmul", error.what());
  }
}

void matmul_bf16(const Gemm& g, const float* a, const float* b, float* c) {
  const std::int64_t a_rows = g.transpose_a ? g.k : g.m;
  const std::int64_t a_cols = g.transpose_a ? g.m : g.k;
  const std::int64_t b_rows = g.transpose_b ? g.n : g.k;
  const std::int64_t b_cols = g.transpose_b ? g.k : g.n;
  auto* a_half = static_cast<std::uint16_t*>(scratch_bytes(Slot::convert_a, static_cast<std::size_t>(a_rows * a_cols) * 2));
  auto* b_half = static_cast<std::uint16_t*>(scratch_bytes(Slot::convert_b, static_cast<std::size_t>(b_rows * b_cols) * 2));
  round_to_bf16(a_rows, a_cols, g.lda, a, a_half);
  round_to_bf16(b_rows, b_cols, g.ldb, b, b_half);
  Gemm dense = g;
  dense.lda = a_cols;
  dense.ldb = b_cols;
  matmul(dense, a_half, b_half, c);
}

// Narrow results: measured, docs/decisions/0001-gemm.md.
bool matmul_is_faster(const Gemm& g) {
  constexpr std::int64_t kManyInputs = 1 << 21;
  if (g.transpose_b) return false;
  if (g.n <= 64 && g.m * g.k >= kManyInputs) return true;
  return g.n <= 16 && g.m >= 256 && !g.transpose_a;
}

}  // namespace

void gemm_onednn(const Gemm& g, const float* a, const float* b, float* c) {
  if (!onednn_ready()) {
    gemm_portable(g, a, b, c);
    return;
  }
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    if (g.accumulate) return;
    for (std::int64_t i = 0; i < g.m; ++i) std::memset(c + i * g.ldc, 0, static_cast<std::size_t>(g.n) * sizeof(float));
    return;
  }
  if (g.whole()) {
    gemm_i16(g, a, b, c);
  } else if (g.symmetric) {
    gemm_in_half(gemm_onednn, g, a, b, c);
  } else if (g.compute == Compute::bf16) {
    matmul_bf16(g, a, b, c);
  } else if (matmul_is_faster(g)) {
    matmul(g, a, b, c);
  } else {
    sgemm(g, a, b, c);
  }
}

}  // namespace dormouse::ops::cpu

#endif
