#include "tensor/parameter.h"

#include "base/error.h"

namespace dormouse::tensor {

std::string name_of(Role role) {
  switch (role) {
    case Role::embedding:
      return "embedding";
    case Role::controller:
      return "controller";
    case Role::iteration:
      return "iteration";
    case Role::attention_qk:
      return "attention_qk";
    case Role::attention:
      return "attention";
    case Role::attention_beta:
      return "attention_beta";
    case Role::memory_dense:
      return "memory_dense";
    case Role::engram_table:
      return "engram_table";
    case Role::engram_key:
      return "engram_key";
    case Role::engram_value:
      return "engram_value";
    case Role::expert:
      return "expert";
    case Role::readout:
      return "readout";
    case Role::norm:
      return "norm";
    case Role::head:
      return "head";
  }
  throw base::Error("unknown parameter role " + std::to_string(static_cast<int>(role)));
}

std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::dense:
      return "dense";
    case Kind::factor_in:
      return "factor_in";
    case Kind::factor_out:
      return "factor_out";
    case Kind::scale:
      return "scale";
    case Kind::bias:
      return "bias";
    case Kind::gain:
      return "gain";
    case Kind::table:
      return "table";
  }
  throw base::Error("unknown parameter kind " + std::to_string(static_cast<int>(kind)));
}

}  // namespace dormouse::tensor
