#include "table/keys.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace dormouse::table {

void ngram_keys(std::span<const std::uint8_t> row, std::span<const std::int64_t> orders, std::span<std::uint32_t> keys) {
  if (orders.size() != kOrders || keys.size() != kOrders * row.size()) {
    throw base::Error("ngram_keys: wants 3 orders and 3 keys per byte");
  }
  for (std::size_t p = 0; p < row.size(); ++p) {
    for (std::size_t i = 0; i < kOrders; ++i) {
      const std::size_t length = std::min(static_cast<std::size_t>(std::max<std::int64_t>(orders[i], 0)), p + 1);
      std::uint64_t hash = base::kKeyBasis;
      for (std::size_t j = p + 1 - length; j <= p; ++j) hash = (hash ^ row[j]) * base::kFnvPrime;
      keys[p * kOrders + i] = static_cast<std::uint32_t>(hash) & 0x7fffffffU;
    }
  }
}

}  // namespace dormouse::table
