#include "ops/cpu_level.h"
#include "ops/ops.h"

namespace dormouse::ops {

const OpTable<float>& cpu_table(bool portable) {
  static const OpTable<float> tables[2] = {[] {
                                             OpTable<float> table = reference_table<float>();
                                             table.name = "cpu";
                                             return table;
                                           }(),
                                           [] {
                                             OpTable<float> table = reference_table<float>();
                                             table.name = "cpu-portable";
                                             return table;
                                           }()};
  return tables[portable ? 1 : 0];
}

}  // namespace dormouse::ops
