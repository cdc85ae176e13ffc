// Parameter: a named weight with its gradient, and what it is (role x kind decides which optimizer trains it).
#pragma once

#include <string>

#include "tensor/tensor.h"

namespace dormouse::tensor {

// Where a parameter stands in the network.
enum class Role : std::uint8_t {
  embedding,
  controller,
  iteration,  // iteration embedding, residual scale
  attention_qk,
  attention,
  attention_beta,  // write strength, one column per head
  memory_dense,
  engram_table,
  engram_key,
  engram_value,
  expert,
  readout,
  norm,
  head,
};

// What shape of thing it is. factor_in is stored [in, k], factor_out [out, k] (orthonormal columns); dense is [in, out].
enum class Kind : std::uint8_t { dense, factor_in, factor_out, scale, bias, gain, table };

std::string name_of(Role role);
std::string name_of(Kind kind);

struct Parameter {
  std::string name;  // public name, as in files: "loop.readout.u"
  Role role = Role::embedding;
  Kind kind = Kind::dense;
  Tensor value;            // f32 master (f64 on the reference column)
  Tensor grad;             // same shape; undefined until the first backward, then kept and zeroed by zero_grad
  std::int64_t heads = 1;  // attention_qk: number of head slices along the output dimension

  void zero_grad() {
    if (grad.defined()) grad.fill_zero();
  }
};

}  // namespace dormouse::tensor
