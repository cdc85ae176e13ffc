#include "base/threads.h"

#include <fmt/format.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace dormouse::base {
namespace {

constexpr int kMostThreads = 4096;

using Path = std::filesystem::path;

// A small file of /proc or /sys; nothing when it is absent. These have no size, so they are read to the end.
std::optional<std::string> read_text(const Path& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::optional<std::int64_t> to_integer(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> read_integer(const Path& path) {
  const auto text = read_text(path);
  return text ? to_integer(*text) : std::nullopt;
}

// The number after `key` at the start of a line: "MemAvailable:   123 kB", "inactive_file 4096".
std::optional<std::uint64_t> keyed_number(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.substr(0, key.size()) != key) continue;
    line.remove_prefix(key.size());
    if (line.empty() || (line[0] != ' ' && line[0] != ':' && line[0] != '\t')) continue;
    line.remove_prefix(std::min(line.find_first_of("0123456789"), line.size()));
    std::uint64_t value = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), value).ec == std::errc{}) return value;
  }
  return std::nullopt;
}

bool lists_controller(std::string_view list, std::string_view name) {
  return (',' + std::string(list) + ',').find(',' + std::string(name) + ',') != std::string::npos;
}

struct Group {
  Path directory;
  bool unified;  // cgroup v2
};

// Every group whose limit binds this process for `controller`: its own and all above it. Inside a container the path of
// /proc/self/cgroup may be the host's; then only the last one, the root of the mount, exists.
std::vector<Group> groups_above(const Path& root, std::string_view controller) {
  std::vector<Group> groups;
  std::istringstream lines(read_text(root / "proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string list = line.substr(first + 1, second - first - 1);
    const bool unified = list.empty();
    if (!unified && !lists_controller(list, controller)) continue;
    const Path base = root / "sys/fs/cgroup";
    const std::vector<Path> mounts =
        unified ? std::vector<Path>{base, base / "unified"} : std::vector<Path>{base / std::string(controller), base / list};
    for (const Path& mount : mounts) {
      for (Path group = Path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
        groups.push_back({mount / group, unified});
        if (group.empty()) break;
      }
    }
  }
  return groups;
}

// CPUs of one group: quota / period in microseconds; "max" (v2) and -1 (v1) mean none.
std::optional<double> group_quota(const Group& group) {
  std::optional<std::int64_t> quota;
  std::optional<std::int64_t> period;
  if (group.unified) {
    const auto text = read_text(group.directory / "cpu.max");
    if (!text) return std::nullopt;
    const std::size_t space = text->find(' ');
    quota = to_integer(std::string_view(*text).substr(0, space));
    period = space == std::string::npos ? 100000 : to_integer(std::string_view(*text).substr(space + 1));
  } else {
    quota = read_integer(group.directory / "cpu.cfs_quota_us");
    period = read_integer(group.directory / "cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// Bytes left in one group. Inactive page cache counts as free: the kernel drops it before it kills.
std::optional<std::uint64_t> group_memory(const Group& group) {
  const auto limit = read_integer(group.directory / (group.unified ? "memory.max" : "memory.limit_in_bytes"));
  const auto usage = read_integer(group.directory / (group.unified ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || !usage || *limit < 0 || *usage < 0) return std::nullopt;
  const std::string statistics = read_text(group.directory / "memory.stat").value_or("");
  const auto cache = keyed_number(statistics, group.unified ? "inactive_file" : "total_inactive_file").value_or(0);
  const auto used = static_cast<std::uint64_t>(*usage) - std::min(static_cast<std::uint64_t>(*usage), cache);
  return static_cast<std::uint64_t>(*limit) - std::min(static_cast<std::uint64_t>(*limit), used);
}

int affinity_threads() {
  for (int possible = 1024; possible <= (1 << 20); possible *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(possible));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(possible));
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;  // fails when the mask is longer
    CPU_FREE(set);
    if (count > 0) return count;
  }
  throw Error("cannot read the CPU affinity of this process; give --threads");
}

[[maybe_unused]] constexpr unsigned kRaised = 0x3f;  // the flags of MXCSR that say what happened

void set_arithmetic([[maybe_unused]] unsigned control) {
#if defined(__SSE__)
  const unsigned now = _mm_getcsr();
  if ((now & ~kRaised) != control) _mm_setcsr(control | (now & kRaised));
#endif
}

}  // namespace

void flush_denormals() {
#if defined(__SSE__)
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#endif
}

unsigned arithmetic() {
#if defined(__SSE__)
  return _mm_getcsr() & ~kRaised;
#else
  return 0;
#endif
}

Arithmetic::Arithmetic(unsigned control) : before_(arithmetic()) { set_arithmetic(control); }
Arithmetic::~Arithmetic() { set_arithmetic(before_); }

int cpu_quota(const Path& root) {
  double least = 0;
  for (const Group& group : groups_above(root, "cpu")) {
    const auto quota = group_quota(group);
    if (quota && (least == 0 || *quota < least)) least = *quota;
  }
  return static_cast<int>(std::min<double>(std::ceil(least), kMostThreads));
}

int available_threads(const Path& root) {
  const int quota = cpu_quota(root);
  const int affinity = std::min(affinity_threads(), kMostThreads);
  return quota > 0 ? std::min(affinity, quota) : affinity;
}

int available_threads() { return available_threads("/"); }

int set_threads(int wanted) {
  if (wanted < 0 || wanted > kMostTeam) {
    throw UsageError(fmt::format("{} threads: give --threads 1 to {}, or leave it out for all there are", wanted, kMostTeam));
  }
  int team = wanted;
  if (wanted == 0) {
    const int available = available_threads();
    team = std::min(available, kMostTeam);
    if (available > team) log_line(fmt::format("{} of {} processors used: the most that work together", team, available));
  }
  omp_set_dynamic(0);
  omp_set_num_threads(team);
  flush_denormals();  // libomp gives the MXCSR of the calling thread to the workers of every later region, libgomp does not
  int started = 0;
#pragma omp parallel num_threads(team)
  {
    flush_denormals();
#pragma omp single
    started = omp_get_num_threads();
  }
  if (started != team) {
    throw Error(
        fmt::format("only {} of {} threads started; raise OMP_THREAD_LIMIT or ulimit -u, or give --threads {}", started, team, started));
  }
  return team;
}

int threads() { return omp_get_max_threads(); }

std::uint64_t available_memory(const Path& root) {
  const auto machine = keyed_number(read_text(root / "proc/meminfo").value_or(""), "MemAvailable");
  if (!machine) throw Error("cannot read MemAvailable from /proc/meminfo; is /proc mounted?");
  std::uint64_t least = *machine * 1024;
  for (const Group& group : groups_above(root, "memory")) {
    if (const auto memory = group_memory(group)) least = std::min(least, *memory);
  }
  return least;
}

std::uint64_t available_memory() { return available_memory("/"); }

std::uint64_t private_memory() {
  const auto bytes = keyed_number(read_text("/proc/self/status").value_or(""), "RssAnon");
  if (!bytes) throw Error("cannot read RssAnon from /proc/self/status; is /proc mounted?");
  return *bytes * 1024;
}

void shorten_spinning([[maybe_unused]] char** argv) {
#if defined(__linux__) && !defined(__clang__)  // Clang's libomp reads other variables and sleeps by itself
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  constexpr const char* kSpins = "2000";  // about 10 us
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);  // by its own name, as ps shows it
  if (!error && setenv("GOMP_SPINCOUNT", kSpins, 1) == 0) execv(program.c_str(), argv);
#endif
}

}  // namespace dormouse::base
