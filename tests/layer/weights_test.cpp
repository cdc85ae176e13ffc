#include "layer/weights.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace dormouse::layer {
namespace {

using format::Scales;
using format::Storage;
using ops::Narrow;

// Tensors packed in memory.
class Store {
 public:
  // The values after packing.
  std::vector<float> put(const std::string& name, std::vector<std::int64_t> dims, Storage storage, Scales axis, std::uint64_t seed = 1) {
    Tensor& tensor = tensors_[name];
    tensor.shape = {std::move(dims), storage, axis};
    base::SplitMix64 random(seed);
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.size()));
    for (float& value : values) value = static_cast<float>(random.normal());
    tensor.codes.resize(tensor.shape.code_bytes());
    tensor.scales.resize(static_cast<std::size_t>(tensor.shape.scale_count()));
    format::PackStats stats;
    EXPECT_EQ(format::pack(tensor.shape, values, tensor.codes, tensor.scales, stats), -1);
    format::widen(packed(name), values);
    return values;
  }
  void forget() { tensors_.clear(); }
  WeightSource source() const {
    return [this](const std::string& name) { return packed(name); };
  }

 private:
  struct Tensor {
    format::PackedShape shape;
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
  };
  format::Packed packed(const std::string& name) const {
    const Tensor& tensor = tensors_.at(name);
    return {name, tensor.shape, tensor.codes, tensor.scales};
  }
  std::map<std::string, Tensor> tensors_;
};

struct Kept {
  Storage storage;
  Scales axis;
  Narrow straight, transposed;  // what becomes of it
};
constexpr Kept kKept[] = {
    {Storage::f32, Scales::none, Narrow::f32, Narrow::f32},        {Storage::f16, Scales::none, Narrow::f32, Narrow::f32},
    {Storage::bf16, Scales::none, Narrow::bf16, Narrow::bf16},     {Storage::int8, Scales::columns, Narrow::int8, Narrow::f32},
    {Storage::int8, Scales::rows, Narrow::f32, Narrow::int8},      {Storage::ternary, Scales::columns, Narrow::ternary, Narrow::f32},
    {Storage::ternary, Scales::rows, Narrow::f32, Narrow::ternary}};
constexpr std::int64_t kRows = 37, kColumns = 45;

// bf16 becomes whole numbers (ops/narrow.h): off by half of max |column| / 32767 or |column| / 46000 at most, of normal columns of 45.
double tolerance(const Kept& kept) { return kept.storage == Storage::bf16 ? 1e-4 : 0; }

std::string what(const Kept& kept) { return std::string(name_of(kept.storage)) + " " + std::string(name_of(kept.axis)); }

TEST(Weights, AMatrixKeepsItsTypeAndValuesWhereScalesStandPerColumn) {
  for (const Kept& kept : kKept) {
    Store store;
    const auto values = store.put("w", {kRows, kColumns}, kept.storage, kept.axis);
    const auto w = matrix(store.source(), "w");
    store.forget();
    EXPECT_EQ(w.type(), kept.straight) << what(kept);
    ASSERT_EQ(w.k(), kRows);
    ASSERT_EQ(w.n(), kColumns);
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t j = 0; j < kColumns; ++j)
        ASSERT_NEAR(w.value(i, j), values[static_cast<std::size_t>(i * kColumns + j)], tolerance(kept))
            << what(kept) << " " << i << " " << j;
  }
}

TEST(Weights, ATransposedMatrixKeepsItsTypeAndValuesWhereScalesStandPerRow) {
  for (const Kept& kept : kKept) {
    Store store;
    const auto values = store.put("w", {kRows, kColumns}, kept.storage, kept.axis);
    const auto w = matrix_transposed(store.source(), "w");
    EXPECT_EQ(w.type(), kept.transposed) << what(kept);
    ASSERT_EQ(w.k(), kColumns);
    ASSERT_EQ(w.n(), kRows);
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t j = 0; j < kColumns; ++j)
        ASSERT_NEAR(w.value(j, i), values[static_cast<std::size_t>(i * kColumns + j)], tolerance(kept))
            << what(kept) << " " << i << " " << j;
  }
}

TEST(Weights, SomeRowsOfATensorAreAMatrix) {
  for (const Kept& kept : kKept) {
    Store store;
    const auto values = store.put("w", {kRows, kColumns}, kept.storage, kept.axis);
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 18}, {18, 19}, {36, 1}}) {
      const auto w = matrix(store.source(), "w", first, count);
      EXPECT_EQ(w.type(), kept.straight) << what(kept);
      ASSERT_EQ(w.k(), count);
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t j = 0; j < kColumns; ++j)
          ASSERT_NEAR(w.value(i, j), values[static_cast<std::size_t>((first + i) * kColumns + j)], tolerance(kept))
              << what(kept) << " from " << first;
    }
  }
}

TEST(Weights, CodesOfMoreRowsThanSumsHoldBecomeF32) {
  Store store;
  const std::int64_t k = ops::NarrowMatrix::kMostCodes + 1;
  const auto values = store.put("w", {k, 2}, Storage::int8, Scales::columns);
  const auto w = matrix(store.source(), "w");
  EXPECT_EQ(w.type(), Narrow::f32);
  EXPECT_EQ(w.value(k - 1, 1), values.back());
}

TEST(Weights, AVectorIsWidened) {
  for (const Storage storage : {Storage::f32, Storage::f16, Storage::bf16}) {
    Store store;
    const auto values = store.put("v", {kColumns}, storage, Scales::none);
    EXPECT_EQ(vector(store.source(), "v"), values);
  }
}

TEST(Weights, ATableGivesItsRowsWidenedAndOutlivesItsSource) {
  for (const Kept& kept : kKept) {
    Store store;
    const auto values = store.put("t", {kRows, kColumns}, kept.storage, kept.axis);
    LookupTable table(store.source(), "t");
    store.forget();
    const LookupTable copy = table;
    table = {};
    EXPECT_EQ(copy.width(), kColumns);
    const std::vector<std::uint32_t> index = {36, 0, 5, 5, 17};
    std::vector<float> y(index.size() * kColumns + 1, -7);
    copy.gather(index, y.data());
    for (std::size_t i = 0; i < index.size(); ++i)
      for (std::size_t j = 0; j < kColumns; ++j)
        ASSERT_EQ(y[i * kColumns + j], values[index[i] * kColumns + j]) << what(kept) << " row " << i;
    EXPECT_EQ(y.back(), -7);
  }
}

TEST(Weights, ATableIsAsNarrowAsItsFile) {
  Store store;
  store.put("bf16", {64, 32}, Storage::bf16, Scales::none);
  store.put("int8", {64, 32}, Storage::int8, Scales::rows);
  EXPECT_EQ(LookupTable(store.source(), "bf16").bytes(), 64U * 32 * 2);
  EXPECT_EQ(LookupTable(store.source(), "int8").bytes(), 64U * 32 + 64 * 4);
}

}  // namespace
}  // namespace dormouse::layer
