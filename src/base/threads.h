// The thread count of the process and the CPU level; set once, before the first kernel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dormouse::base {

// min(affinity mask, cgroup v1/v2 CPU quota rounded up), at least 1.
int available_threads();

// Sets the OpenMP team size (0: available_threads()) and FTZ + DAZ in every worker of that team. Returns the size.
int set_threads(int threads);
int threads();

// Bytes this process may use: min(MemAvailable, cgroup limit - usage).
std::uint64_t available_memory();
// Private (anonymous) resident bytes now: RssAnon of /proc/self/status.
std::uint64_t private_memory();

}  // namespace dormouse::base
