#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "sanitizer.h"
#include "tensor/parameter.h"
#include "tensor/pool.h"

namespace dormouse::tensor {
namespace {

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.size()));
  std::iota(values.begin(), values.end(), 0.0F);
  return Tensor::from<float>(shape, values);
}

TEST(Tensor, StorageIsAlignedTo64BytesAtEverySize) {
  for (const std::int64_t n : {0, 1, 15, 16, 17, 1000, 4097, 1 << 20}) {
    const Tensor t = Tensor::zeros({n}, Dtype::f32);
    EXPECT_TRUE(t.defined());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.bytes()) % 64, 0U) << n;
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(t.data<float>()[i], 0.0F);
  }
}

TEST(Tensor, CopiesShareStorageAndClonesDoNot) {
  const Tensor a = counting({2, 3});
  const Tensor b = a;
  const Tensor c = a.clone();
  a.data<float>()[4] = 40.0F;
  EXPECT_EQ(b.at(4), 40.0);
  EXPECT_EQ(c.at(4), 4.0);
}

TEST(Tensor, RowsSliceOfEveryRankStartsAtTheRightElement) {
  EXPECT_EQ(counting({7}).rows_slice(3, 2).at(0), 3.0);
  EXPECT_EQ(counting({5, 3}).rows_slice(2, 2).at(0), 6.0);
  const Tensor t = counting({4, 2, 3}).rows_slice(3, 1);
  EXPECT_EQ(t.shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(t.at(0), 18.0);
  EXPECT_EQ(t.at(5), 23.0);
  EXPECT_EQ(counting({4, 2, 3}).rows_slice(4, 0).size(), 0);
}

TEST(Tensor, ColumnsKeepTheLeadingDimensionAndTheirRowsSliceKeepsItToo) {
  const Tensor whole = counting({4, 5});
  const Tensor part = whole.columns(1, 2);
  EXPECT_EQ(part.ld(), 5);
  EXPECT_FALSE(part.contiguous());
  EXPECT_EQ(part.at(3), 7.0);
  EXPECT_EQ(part.rows_slice(2, 1).at(1), 12.0);
  EXPECT_TRUE(part.rows_slice(2, 1).contiguous());
  EXPECT_EQ(part.clone().ld(), 2);
  EXPECT_EQ(part.clone().at(7), 17.0);
  part.fill_zero();
  EXPECT_EQ(whole.at(5), 5.0);
  EXPECT_EQ(whole.at(6), 0.0);
  EXPECT_EQ(whole.at(7), 0.0);
  EXPECT_EQ(whole.at(8), 8.0);
  whole.columns(3, 2).copy_from(counting({4, 2}));
  EXPECT_EQ(whole.at(18), 6.0);
  EXPECT_THROW(part.view({8}), base::Error);
}

TEST(Tensor, ConversionsBetweenF32AndF64KeepTheValues) {
  const Tensor wide = counting({3, 5}).columns(1, 3).to(Dtype::f64);
  EXPECT_EQ(wide.dtype(), Dtype::f64);
  EXPECT_EQ(wide.at(4), 7.0);
  EXPECT_EQ(wide.to(Dtype::f32).at(8), 13.0);
  EXPECT_THROW(wide.to(Dtype::bf16), base::Error);
}

TEST(Tensor, MisuseIsAnErrorAndNotMemoryCorruption) {
  const Tensor t = counting({2, 3});
  EXPECT_THROW(t.data<double>(), base::Error);
  EXPECT_THROW(Tensor().data<float>(), base::Error);
  EXPECT_THROW(t.view({7}), base::Error);
  EXPECT_THROW(t.rows_slice(1, 2), base::Error);
  EXPECT_THROW(t.columns(-1, 1), base::Error);
  EXPECT_THROW(t.copy_from(counting({3, 2})), base::Error);
  EXPECT_THROW(t.at(6), base::Error);
  EXPECT_THROW(Tensor::from<float>({4}, std::vector<float>(3)), base::Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}), base::Error);
  EXPECT_THROW((Shape{-1}), base::Error);
  EXPECT_THROW((Shape{1LL << 40, 1LL << 40}), base::Error);
}

TEST(Pool, SizeClassesWasteAtMostAnEighthAndStayAligned) {
  for (std::size_t bytes = 0; bytes < 100000; bytes += 37) {
    const std::size_t size = block_size(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_EQ(size % 64, 0U);
    ASSERT_LE(size, std::max<std::size_t>(bytes + 64, bytes + bytes / 8));
    ASSERT_EQ(block_size(size), size);
  }
}

TEST(Pool, FreedBlocksAreCountedKeptAndHandedOutAgain) {
  trim_pool();
  const PoolUse before = pool_use();
  EXPECT_EQ(before.cached_bytes, 0U);
  std::byte* first = nullptr;
  {
    const Tensor t = Tensor::empty({1 << 20}, Dtype::f32);
    first = t.bytes();
    EXPECT_EQ(pool_use().live_bytes, before.live_bytes + (4U << 20));
    EXPECT_GE(pool_use().peak_bytes, pool_use().live_bytes);
  }
  EXPECT_EQ(pool_use().live_bytes, before.live_bytes);
  EXPECT_EQ(pool_use().cached_bytes, 4U << 20);
  const Tensor again = Tensor::empty({1024, 1024}, Dtype::f32);
  EXPECT_EQ(again.bytes(), first);
  EXPECT_EQ(pool_use().cached_bytes, 0U);
  trim_pool();
  EXPECT_EQ(pool_use().live_bytes, before.live_bytes + (4U << 20));
}

TEST(Pool, ThreadsTakingAndGivingAtOnceNeverShareABlock) {
  const std::uint64_t live = pool_use().live_bytes;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([id, &wrong] {
      for (int i = 0; i < 500; ++i) {
        std::vector<Tensor> held;
        for (int j = 0; j < 4; ++j) {
          held.push_back(Tensor::empty({64 + j}, Dtype::f32));
          std::fill_n(held.back().data<float>(), 64 + j, static_cast<float>(id * 10 + j));
        }
        for (int j = 0; j < 4; ++j) {
          for (int k = 0; k < 64 + j; ++k) wrong[static_cast<std::size_t>(id)] += held[static_cast<std::size_t>(j)].at(k) != id * 10 + j;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  EXPECT_EQ(pool_use().live_bytes, live);
}

TEST(Pool, AnImpossibleAllocationIsAOneLineError) {
  if (tests::kAddressSanitizer) GTEST_SKIP() << "AddressSanitizer aborts on such a request before it can fail";
  try {
    Tensor::empty({1LL << 50}, Dtype::f64);
    FAIL() << "8 PiB were allocated";
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("out of memory"), std::string::npos) << error.what();
  }
}

TEST(Parameter, ZeroGradClearsAKeptGradientAndToleratesNone) {
  Parameter p;
  p.zero_grad();
  EXPECT_FALSE(p.grad.defined());
  p.grad = counting({3});
  p.zero_grad();
  EXPECT_EQ(p.grad.at(2), 0.0);
}

TEST(Parameter, EveryRoleAndKindHasItsOwnName) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(Role::head); ++i) names.insert(name_of(static_cast<Role>(i)));
  EXPECT_EQ(names.size(), 14U);
  names.clear();
  for (int i = 0; i <= static_cast<int>(Kind::table); ++i) names.insert(name_of(static_cast<Kind>(i)));
  EXPECT_EQ(names.size(), 7U);
}

}  // namespace
}  // namespace dormouse::tensor
