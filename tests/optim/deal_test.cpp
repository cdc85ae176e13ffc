#include "optim/deal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/threads.h"

namespace dormouse::optim {
namespace {

using tensor::Dtype;
using tensor::Tensor;

class DealTest : public testing::Test {
 protected:
  void TearDown() override { base::set_threads(0); }
};

TEST_F(DealTest, VisitsEveryMatrixOnceForEveryThreadCount) {
  std::vector<Tensor> matrices;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {300, 256}, {8, 3}, {8, 3}, {3, 8}, {300, 256}, {300, 256}, {256, 300}, {0, 4}, {1, 1}, {8, 3}, {300, 256}, {8, 3}, {8, 3}}) {
    matrices.push_back(Tensor::empty({rows, cols}, Dtype::f32));
  }
  for (const int threads : {1, 2, 3, 8}) {
    base::set_threads(threads);
    std::vector<std::atomic<int>> visits(matrices.size());
    deal(ops::cpu_table(), matrices, [&](std::size_t i) { ++visits[i]; });
    for (const auto& times : visits) EXPECT_EQ(times, 1);
  }
  deal(ops::cpu_table(), {}, [](std::size_t) { FAIL(); });
}

TEST_F(DealTest, ThrowsWhatAVisitThrew) {
  base::set_threads(2);
  const std::vector<Tensor> matrices(6, Tensor::empty({64, 64}, Dtype::f32));
  EXPECT_THROW(deal(ops::cpu_table(), matrices,
                    [](std::size_t i) {
                      if (i == 4) throw std::runtime_error("the fifth");
                    }),
               std::runtime_error);
}

}  // namespace
}  // namespace dormouse::optim
