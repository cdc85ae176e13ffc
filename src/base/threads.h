// Threads of the process (set once, before the first kernel) and the memory it may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace dormouse::base {

// min(affinity mask, cgroup v1/v2 CPU quota rounded up), at least 1.
int available_threads();
// The same with /proc and /sys looked up below `root`, which tests fill with files of their own.
int available_threads(const std::filesystem::path& root);
// The quota alone: whole CPUs, rounded up; 0 when there is none. The smallest of this process's group and those above it.
int cpu_quota(const std::filesystem::path& root);

inline constexpr int kMostTeam = 64;  // oneDNN 2.6.3's f32 product crashes on teams of 96; 72 were seen to work
// Sets the OpenMP team size (0: available_threads(), at most kMostTeam) and FTZ + DAZ in every worker of that team. Returns the size.
int set_threads(int threads);
int threads();
// FTZ and DAZ in the calling thread.
void flush_denormals();
// How the calling thread rounds, traps and treats denormals: the control bits of MXCSR; 0 on other machines.
unsigned arithmetic();
#if defined(__SSE__)
inline constexpr unsigned kPlainArithmetic = 0x1f80;  // to nearest, no traps, denormals are numbers
#else
inline constexpr unsigned kPlainArithmetic = 0;
#endif
// While it lives, the calling thread computes so.
class Arithmetic {
 public:
  explicit Arithmetic(unsigned control);
  ~Arithmetic();
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;

 private:
  unsigned before_;
};

// Idle workers of libgomp spin for a while before they sleep; on a machine with other work that makes a step several times slower.
// libgomp reads the length of the spin before main: when neither OMP_WAIT_POLICY nor GOMP_SPINCOUNT is set, this sets a short one and
// starts the program again in its place. Returns when there is nothing to do, or when it cannot.
void shorten_spinning(char** argv);

// Bytes this process may use: min(MemAvailable, cgroup limit - usage); inactive page cache is not counted as used.
std::uint64_t available_memory();
std::uint64_t available_memory(const std::filesystem::path& root);
// Private (anonymous) resident bytes now: RssAnon of /proc/self/status.
std::uint64_t private_memory();

}  // namespace dormouse::base
