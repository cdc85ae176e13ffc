// The reference column, assembled.
#include "ops/reference/attention.h"
#include "ops/reference/cross_entropy.h"
#include "ops/reference/elementwise.h"
#include "ops/reference/engram.h"
#include "ops/reference/gates.h"
#include "ops/reference/gemm.h"
#include "ops/reference/hidden.h"
#include "ops/reference/kda.h"
#include "ops/reference/narrow.h"
#include "ops/reference/norm.h"
#include "ops/reference/optim.h"
#include "ops/reference/residual.h"

namespace dormouse::ops {

template <class T>
const OpTable<T>& reference_table() {
  static constexpr OpTable<T> kTable{
      .name = "reference",
      .gemm = reference::gemm<T>,
      .split = [](std::int64_t n, std::int64_t, const auto& body) { body(0, n); },
      .products = reference::products<T>,
      .gather = reference::gather<T>,
      .gather_backward = reference::gather_backward<T>,
      .add_row = reference::add_row<T>,
      .add_row_backward = reference::add_row_backward<T>,
      .axpy = reference::axpy<T>,
      .rms_norm = reference::rms_norm<T>,
      .rms_norm_backward = reference::rms_norm_backward<T>,
      .gates = reference::gates<T>,
      .gates_backward = reference::gates_backward<T>,
      .silu = reference::silu<T>,
      .silu_backward = reference::silu_backward<T>,
      .sigmoid = reference::sigmoid<T>,
      .sigmoid_backward = reference::sigmoid_backward<T>,
      .hidden = reference::hidden<T>,
      .hidden_backward = reference::hidden_backward<T>,
      .silu_head_norm = reference::silu_head_norm<T>,
      .silu_head_norm_backward = reference::silu_head_norm_backward<T>,
      .decay = reference::decay<T>,
      .decay_backward = reference::decay_backward<T>,
      .kda = reference::kda<T>,
      .kda_backward = reference::kda_backward<T>,
      .kda_step = reference::kda_step<T>,
      .gated_head_norm = reference::gated_head_norm<T>,
      .gated_head_norm_backward = reference::gated_head_norm_backward<T>,
      .engram_read = reference::engram_read<T>,
      .engram_read_backward = reference::engram_read_backward<T>,
      .residual = reference::residual<T>,
      .residual_backward = reference::residual_backward<T>,
      .scale_columns = reference::scale_columns<T>,
      .scale_columns_backward = reference::scale_columns_backward<T>,
      .cross_entropy = reference::cross_entropy<T>,
      .cross_entropy_backward = reference::cross_entropy_backward<T>,
      .log_softmax = reference::log_softmax<T>,
      .sum_squares = reference::sum_squares<T>,
      .normalize_columns = reference::normalize_columns<T>,
      .normalize_rows = reference::normalize_rows<T>,
      .adamw = reference::adamw<T>,
  };
  return kTable;
}

template const OpTable<float>& reference_table<float>();
template const OpTable<double>& reference_table<double>();

}  // namespace dormouse::ops
