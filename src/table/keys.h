// n-gram keys of the Engram memory.
#pragma once

#include <cstdint>
#include <span>

namespace dormouse::table {

inline constexpr int kOrders = 3;  // 2, 3, 4 bytes

// keys[p*3+i] = low 31 bits of FNV-1a (basis base::kKeyBasis) over the last orders[i] bytes up to and including position p;
// the context never crosses the start of `row`. keys has 3*row.size() entries.
void ngram_keys(std::span<const std::uint8_t> row, std::span<const std::int64_t> orders, std::span<std::uint32_t> keys);

}  // namespace dormouse::table
