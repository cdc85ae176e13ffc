// The optimizer of a run: routing by role x kind, one rule a group.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "optim/schedule.h"
#include "tensor/parameter.h"

namespace dormouse::optim {

using tensor::Parameter;
using tensor::Tensor;

enum class Group : std::uint8_t { muon, qk, dense, table, rest };
std::string name_of(Group group);

// mix: factors of experts and readout, and the Engram key, are muon; W_q, W_k are qk; the Engram table is table; all else rest.
// mix-dense, the default of a run: also the block's other dense projections are dense, by the rule of muon.
// adamw: everything but the tables is rest. Another opt: base::UsageError.
Group group_of(const Parameter& parameter, const std::string& opt);

struct OptimizerConfig {
  std::string opt = "mix";  // mix-dense | mix | adamw
  double weight_decay = 0.05;
  double grad_clip = 1.0;  // global norm over the rest group; 0 = off
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double muon_momentum = 0.95;
  std::int64_t ns_steps = 8;
  ops::Compute ns_compute = ops::Compute::f32;  // of the products of Newton-Schulz
  double mult_muon = 1, mult_qk = 1, mult_dense = 4, mult_table = 3, mult_embedding = 2, mult_rest = 1;
  std::int64_t retract_every = 1, retract_iters = 3;
};

struct StepReport {
  bool applied = true;              // false: the firewall made it a no-op (a non-finite gradient somewhere)
  double grad_norm = 0;             // global norm of all gradients before clipping (rest: see clip_norm)
  double clip_norm = 0;             // norm of the rest group, the clipped one
  std::int64_t zero_gradients = 0;  // muon/qk matrices whose gradient was exactly zero (unchanged)
  double retraction_seconds = 0;
};

class Optimizer {
 public:
  // Parameters must outlive the optimizer; each falls in exactly one group.
  Optimizer(std::vector<Parameter*> parameters, OptimizerConfig config, const ops::OpTable<float>& table);

  // One update at these learning rates from parameter->grad; then retraction of spectral factors when due (applied % retract_every == 0).
  // table rows: `touched_rows` (sorted, unique row indices of the table parameters; null = all rows).
  StepReport step(const Rates& rates, const std::vector<std::uint32_t>* touched_rows);

  // The state of one parameter begins anew.
  void forget(const Parameter& parameter);

  // max over factors of ||X^T X - I||_F / k
  double max_ortho() const;
  std::int64_t applied() const;

  // State as named tensors "optimizer.<parameter>.{momentum|m|v|count}" and "optimizer.applied" (u32 [1]); load refuses missing, extra or
  // misshaped.
  void for_each_state(const std::function<void(const std::string& name, Tensor& value)>& visit);

  // The table printed at start: parameter, group, shape, lr multiplier, weight decay.
  std::string routing_table() const;
  // Parameters per group: "muon 15 (1,179,648), qk 2 (...), table 1, rest 27"
  std::string summary() const;

 private:
  struct Slot {
    Parameter* parameter;
    Group group;
    double multiplier;
    double weight_decay;
    std::int64_t heads = 1;  // of qk: blocks of columns, each a matrix of its own
    Tensor momentum = {};    // muon, qk, dense
    Tensor m = {}, v = {};   // table, rest
    Tensor count = {};       // table: u32 per row
  };
  double gradient_squares(const Slot& slot, const std::vector<std::uint32_t>* touched_rows) const;
  std::int64_t step_matrices(double lr);  // of muon, qk and dense; returns how many had a zero gradient
  bool step_matrix(const Slot& slot, double lr, const Tensor& value, const Tensor& grad, const Tensor& momentum) const;
  void retract_factors();
  void step_table(Slot& slot, double lr, const std::vector<std::uint32_t>* touched_rows);
  void step_rest(Slot& slot, double lr, double grad_scale);
  void adam(Slot& slot, std::int64_t begin, std::int64_t n, double lr, std::uint32_t t, double grad_scale) const;

  std::vector<Slot> slots_;
  OptimizerConfig config_;
  const ops::OpTable<float>* table_;
  Tensor applied_;
};

}  // namespace dormouse::optim
