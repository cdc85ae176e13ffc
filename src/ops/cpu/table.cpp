#include "ops/cpu/kda.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu_level.h"
#include "ops/ops.h"

namespace dormouse::ops {
namespace {

OpTable<float> make_table(bool portable) {
  OpTable<float> table{};
  table.name = portable ? "cpu-portable" : "cpu";
  table.gemm = cpu::gemm_portable;
  table.hidden = cpu::hidden_portable;
  table.hidden_backward = cpu::hidden_portable_backward;
#ifdef DORMOUSE_ONEDNN
  if (!portable) {
    table.gemm = cpu::gemm_onednn;
    table.hidden = cpu::hidden_onednn;
    table.hidden_backward = cpu::hidden_onednn_backward;
  }
#endif
  table.split = cpu::split;
  table.products = cpu::products;
  table.gather = cpu::gather;
  table.gather_backward = cpu::gather_backward;
  table.add_row = cpu::add_row;
  table.add_row_backward = cpu::add_row_backward;
  table.axpy = cpu::axpy;
  table.rms_norm = cpu::rms_norm;
  table.rms_norm_backward = cpu::rms_norm_backward;
  table.gates = cpu::gates;
  table.gates_backward = cpu::gates_backward;
  table.silu = cpu::silu;
  table.silu_backward = cpu::silu_backward;
  table.sigmoid = cpu::sigmoid;
  table.sigmoid_backward = cpu::sigmoid_backward;
  table.silu_head_norm = cpu::silu_head_norm;
  table.silu_head_norm_backward = cpu::silu_head_norm_backward;
  table.decay = cpu::decay;
  table.decay_backward = cpu::decay_backward;
  table.kda = cpu::kda;
  table.kda_backward = cpu::kda_backward;
  table.kda_step = cpu::kda_step;
  table.gated_head_norm = cpu::gated_head_norm;
  table.gated_head_norm_backward = cpu::gated_head_norm_backward;
  table.engram_read = cpu::engram_read;
  table.engram_read_backward = cpu::engram_read_backward;
  table.residual = cpu::residual;
  table.residual_backward = cpu::residual_backward;
  table.scale_columns = cpu::scale_columns;
  table.scale_columns_backward = cpu::scale_columns_backward;
  table.cross_entropy = cpu::cross_entropy;
  table.cross_entropy_backward = cpu::cross_entropy_backward;
  table.log_softmax = cpu::log_softmax;
  table.sum_squares = cpu::sum_squares;
  table.normalize_columns = cpu::normalize_columns;
  table.normalize_rows = cpu::normalize_rows;
  table.adamw = cpu::adamw;
  return table;
}

}  // namespace

const OpTable<float>& cpu_table(bool portable) {
  static const OpTable<float> own = make_table(true);
  static const OpTable<float> best = make_table(false);
  static_cast<void>(cpu_level());  // applies DORMOUSE_CPU where set_cpu_level() was not called
  return portable ? own : best;
}

}  // namespace dormouse::ops
