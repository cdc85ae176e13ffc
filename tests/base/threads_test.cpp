#include "base/threads.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "folder.h"

namespace dormouse::base {
namespace {

namespace fs = std::filesystem;

// A root folder with the /proc and /sys files a test puts there.
class CgroupTest : public tests::FolderTest {
 protected:
  void SetUp() override { put("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 10 kB\nMemAvailable:   4000 kB\n"); }
  void put(const fs::path& path, std::string_view text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  const fs::path& root_ = folder_;
};

TEST_F(CgroupTest, WithoutAnyGroupThereIsNoQuota) {
  EXPECT_EQ(cpu_quota(root_), 0);
  EXPECT_GE(available_threads(root_), 1);
  EXPECT_EQ(available_memory(root_), 4000U * 1024);
}

TEST_F(CgroupTest, AVersion2QuotaIsRoundedUp) {
  put("proc/self/cgroup", "0::/user/run\n");
  put("sys/fs/cgroup/user/run/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 3);
  put("sys/fs/cgroup/user/run/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root_), 0);
  put("sys/fs/cgroup/user/run/cpu.max", "1000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 1);
  EXPECT_EQ(available_threads(root_), 1);
}

TEST_F(CgroupTest, AVersion2LimitOfAParentBinds) {
  put("proc/self/cgroup", "0::/user/run\n");
  put("sys/fs/cgroup/user/run/cpu.max", "800000 100000\n");
  put("sys/fs/cgroup/user/cpu.max", "200000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 2);
}

TEST_F(CgroupTest, AVersion1QuotaIsReadUnderEitherMountName) {
  put("proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n");
  put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "150000\n");
  put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), 2);
  put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpu_quota(root_), 0);
  put("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "50000\n");
  put("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), 1);
}

TEST_F(CgroupTest, InsideAContainerTheRootOfTheMountCounts) {
  put("proc/self/cgroup", "0::/docker/0123abcd\n");
  put("sys/fs/cgroup/cpu.max", "100000 100000\n");
  put("sys/fs/cgroup/memory.max", "1048576\n");
  put("sys/fs/cgroup/memory.current", "524288\n");
  EXPECT_EQ(cpu_quota(root_), 1);
  EXPECT_EQ(available_memory(root_), 524288U);
}

TEST_F(CgroupTest, InactivePageCacheDoesNotCountAsUsedMemory) {
  put("proc/self/cgroup", "0::/a\n");
  put("sys/fs/cgroup/a/memory.max", "1000000\n");
  put("sys/fs/cgroup/a/memory.current", "900000\n");
  EXPECT_EQ(available_memory(root_), 100000U);
  put("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file_pages 7\ninactive_file 300000\n");
  EXPECT_EQ(available_memory(root_), 400000U);
  put("sys/fs/cgroup/a/memory.max", "max\n");
  EXPECT_EQ(available_memory(root_), 4000U * 1024);
}

TEST_F(CgroupTest, AVersion1MemoryLimitBindsAndNoneIsHarmless) {
  put("proc/self/cgroup", "4:memory:/box\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n");
  EXPECT_EQ(available_memory(root_), 4000U * 1024);
  put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "5000\n");
  put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "7000\n");
  EXPECT_EQ(available_memory(root_), 0U);
}

TEST_F(CgroupTest, GarbageInTheFilesIsNoLimit) {
  put("proc/self/cgroup", "\n:::\nx\n0::\n0::/../..\n");
  put("sys/fs/cgroup/cpu.max", "many of them\n");
  put("sys/fs/cgroup/memory.max", "-5\n");
  EXPECT_EQ(cpu_quota(root_), 0);
  EXPECT_EQ(available_memory(root_), 4000U * 1024);
}

TEST_F(CgroupTest, WithoutMemInfoAvailableMemoryIsAnError) {
  fs::remove(root_ / "proc/meminfo");
  EXPECT_THROW(available_memory(root_), Error);
}

TEST(Threads, TheAffinityMaskBinds) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  const int threads_then = available_threads();
  ::sched_setaffinity(0, sizeof(before), &before);
  EXPECT_EQ(threads_then, 1);
  EXPECT_LE(available_threads(), CPU_COUNT(&before));
}

// A product that is subnormal without FTZ; volatile keeps it out of the compiler's hands.
bool denormals_are_flushed() {
  volatile float small = 1e-30F;
  volatile float product = small * 1e-10F;
  volatile float denormal = 1e-40F;
  volatile float sum = denormal * 1e10F;
  return product == 0.0F && sum == 0.0F;
}

TEST(Threads, EveryWorkerFlushesDenormals) {
#if defined(__SSE__)
  for (const int team : {1, 3, 5}) {
    EXPECT_EQ(set_threads(team), team);
    EXPECT_EQ(threads(), team);
    std::vector<int> flushed(static_cast<std::size_t>(team), 0);
#pragma omp parallel
    {
      EXPECT_EQ(omp_get_num_threads(), team);
      flushed[static_cast<std::size_t>(omp_get_thread_num())] = denormals_are_flushed() ? 1 : 0;
    }
    for (const int worker : flushed) EXPECT_EQ(worker, 1);
  }
  set_threads(0);
#else
  GTEST_SKIP() << "no MXCSR on this architecture";
#endif
}

TEST(Threads, ZeroMeansAllThatAreAvailable) { EXPECT_EQ(set_threads(0), std::min(available_threads(), 64)); }

TEST(Threads, AbsurdCountsAreUsageErrors) {
  EXPECT_THROW(set_threads(-1), UsageError);
  EXPECT_THROW(set_threads(1000000), UsageError);
}

TEST(Threads, PrivateMemoryGrowsWithTouchedPages) {
  const std::uint64_t before = private_memory();
  std::vector<char> pages(64U << 20);
  volatile char* const bytes = pages.data();  // volatile: the compiler may not leave the writes out
  for (std::size_t at = 0; at < pages.size(); at += 1024) bytes[at] = 1;
  EXPECT_GE(private_memory(), before + (48U << 20));
}

}  // namespace
}  // namespace dormouse::base
