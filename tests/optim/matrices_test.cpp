#include "optim/matrices.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/threads.h"

namespace dormouse::optim {
namespace {

using tensor::Dtype;
using tensor::Tensor;

class ForEachMatrixTest : public testing::Test {
 protected:
  void TearDown() override { base::set_threads(0); }
};

TEST_F(ForEachMatrixTest, VisitsEveryMatrixOnceForEveryThreadCount) {
  std::vector<Tensor> matrices;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {300, 256}, {8, 3}, {8, 3}, {3, 8}, {300, 256}, {300, 256}, {256, 300}, {0, 4}, {1, 1}, {8, 3}, {300, 256}, {8, 3}, {8, 3}}) {
    matrices.push_back(Tensor::empty({rows, cols}, Dtype::f32));
  }
  for (const int threads : {1, 2, 3, 8}) {
    base::set_threads(threads);
    std::vector<std::atomic<int>> visits(matrices.size());
    for_each_matrix(ops::cpu_table(), matrices, [&](std::size_t i) { ++visits[i]; });
    for (const auto& times : visits) EXPECT_EQ(times, 1);
  }
  for_each_matrix(ops::cpu_table(), {}, [](std::size_t) { FAIL(); });
}

TEST_F(ForEachMatrixTest, EqualShapesGoToDifferentThreadsAndLargeOnesLeftOverToAll) {
  base::set_threads(2);
  const auto threads_of = [](std::int64_t side, std::size_t count) {
    std::vector<std::thread::id> ids(count);
    for_each_matrix(ops::cpu_table(), std::vector<Tensor>(count, Tensor::empty({side, side}, Dtype::f32)),
                    [&](std::size_t i) { ids[i] = std::this_thread::get_id(); });
    return ids;
  };
  const auto caller = std::this_thread::get_id();
  const auto small = threads_of(64, 4), large = threads_of(256, 3);
  EXPECT_EQ(std::set(small.begin(), small.end()).size(), 2U);
  EXPECT_NE(large[0], large[1]);
  EXPECT_EQ(large[2], caller);
}

TEST_F(ForEachMatrixTest, ThrowsWhatAVisitThrew) {
  base::set_threads(2);
  const std::vector<Tensor> matrices(6, Tensor::empty({64, 64}, Dtype::f32));
  EXPECT_THROW(for_each_matrix(ops::cpu_table(), matrices,
                               [](std::size_t i) {
                                 if (i == 4) throw std::runtime_error("the fifth");
                               }),
               std::runtime_error);
}

}  // namespace
}  // namespace dormouse::optim
