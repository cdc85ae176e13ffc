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

KeyReader::KeyReader(std::span<const std::int64_t> orders)
    : orders_(orders), longest_(static_cast<std::size_t>(*std::max_element(orders.begin(), orders.end()))) {}

void KeyReader::read(std::span<const std::uint8_t> bytes, std::vector<std::uint32_t>& keys) {
  const auto before = static_cast<std::ptrdiff_t>(tail_.size()) * kOrders;
  tail_.insert(tail_.end(), bytes.begin(), bytes.end());
  std::vector<std::uint32_t> row(tail_.size() * kOrders);
  ngram_keys(tail_, orders_, row);
  keys.insert(keys.end(), row.begin() + before, row.end());
  if (tail_.size() > longest_) tail_.erase(tail_.begin(), tail_.end() - static_cast<std::ptrdiff_t>(longest_));
}

}  // namespace dormouse::table
