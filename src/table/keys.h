// n-gram keys of the Engram memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dormouse::table {

inline constexpr int kOrders = 3;  // 2, 3, 4 bytes

// keys[p*3+i] = low 31 bits of FNV-1a (basis base::kKeyBasis) over the last orders[i] bytes up to and including position p;
// the context never crosses the start of `row`. keys has 3*row.size() entries.
void ngram_keys(std::span<const std::uint8_t> row, std::span<const std::int64_t> orders, std::span<std::uint32_t> keys);

// Keys of a text that is read piece by piece, as of one row.
class KeyReader {
 public:
  explicit KeyReader(std::span<const std::int64_t> orders);  // outlive the reader
  void restart() { tail_.clear(); }
  // Appends the keys of `bytes`, which follow what was read: 3*bytes.size() of them.
  void read(std::span<const std::uint8_t> bytes, std::vector<std::uint32_t>& keys);

 private:
  std::span<const std::int64_t> orders_;
  std::size_t longest_;
  std::vector<std::uint8_t> tail_;  // the last bytes read, as many as the longest n-gram needs
};

}  // namespace dormouse::table
