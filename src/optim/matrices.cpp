#include "optim/matrices.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "base/threads.h"

namespace dormouse::optim {

void for_each_matrix(const ops::OpTable<float>& table, const std::vector<tensor::Tensor>& matrices,
                     const std::function<void(std::size_t i)>& visit) {
  constexpr std::int64_t kLarge = 256;  // of the narrower side; two threads win nothing at 64, 1.6 times at 768 (docs/decisions/0011)
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> equal;
  for (std::size_t i = 0; i < matrices.size(); ++i) equal[{matrices[i].dim(0), matrices[i].dim(1)}].push_back(i);
  for (const auto& [shape, list] : equal) {
    const auto [rows, cols] = shape;
    const std::int64_t side = std::min(rows, cols), count = std::ssize(list);
    const std::int64_t handed_out = side < kLarge ? count : count - count % base::threads();
    table.split(handed_out, handed_out * rows * cols * side, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) visit(list[static_cast<std::size_t>(i)]);
    });
    for (std::int64_t i = handed_out; i < count; ++i) visit(list[static_cast<std::size_t>(i)]);
  }
}

}  // namespace dormouse::optim
