// The fingerprint: the same every time, the same decoding at every thread count.
#include "train/fingerprint.h"

#include <gtest/gtest.h>

#include <map>

#include "base/threads.h"
#include "ops/cpu_level.h"

namespace dormouse::train {
namespace {

TEST(Fingerprint, IsTheSameEveryTimeAndOfDecodingAtEveryThreadCount) {
  const int threads = base::threads();
  const std::string level = ops::cpu_level();
  const auto once = fingerprints(2), again = fingerprints(2);
  ASSERT_EQ(once.size(), 2 * ops::available_cpu_levels().size());
  std::map<std::string, std::uint64_t> decoding;
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(once[i].training, again[i].training) << once[i].cpu_level;
    EXPECT_EQ(once[i].decoding, again[i].decoding) << once[i].cpu_level;
    EXPECT_EQ(decoding.emplace(once[i].cpu_level, once[i].decoding).first->second, once[i].decoding) << once[i].cpu_level;
  }
  EXPECT_EQ(base::threads(), threads);
  EXPECT_EQ(ops::cpu_level(), level);
}

}  // namespace
}  // namespace dormouse::train
