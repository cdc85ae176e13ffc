#include "ops/cpu_level.h"

#include <hwy/highway.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "base/error.h"
#include "ops/cpu/kernels.h"
#ifdef DORMOUSE_ONEDNN
#include <dnnl.h>
#endif

namespace dormouse::ops {
namespace {

struct Level {
  std::string_view name;
  std::int64_t targets;  // the Highway targets this level adds to the ones below it
};

#if HWY_ARCH_X86
constexpr std::array<Level, 5> kLevels{
    {{"scalar", 0}, {"ssse3", HWY_SSSE3}, {"sse4", HWY_SSE4}, {"avx2", HWY_AVX2}, {"avx512", HWY_AVX3 | HWY_AVX3_DL}}};
#else
constexpr std::array<Level, 2> kLevels{{{"scalar", 0}, {"native", ~(HWY_SCALAR | HWY_EMU128)}}};
#endif

// What the machine can run and this build has kernels for, asked before the first DisableTargets.
std::int64_t detected_targets() {
  static const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets;
}

bool available(std::size_t index) { return index == 0 || (detected_targets() & kLevels[index].targets) != 0; }

std::string joined_levels() {
  std::string text;
  for (const std::string& name : available_cpu_levels()) text += (text.empty() ? "" : " ") + name;
  return text;
}

std::size_t find_level(std::string_view name, std::string_view origin) {
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    if (kLevels[i].name != name) continue;
    if (!available(i)) {
      throw base::UsageError(std::string(origin) + ": there is no " + std::string(name) + " here; there are: " + joined_levels());
    }
    return i;
  }
  throw base::UsageError(std::string(origin) + ": unknown CPU level '" + base::escape(name) + "'; this machine has: " + joined_levels());
}

constexpr std::size_t kUnset = SIZE_MAX;
std::atomic<std::size_t> current = kUnset;
// oneDNN takes its instruction set once, at its first use.
std::atomic<std::size_t> onednn_level = kUnset;
std::mutex first_use;  // several threads may meet at it

void apply(std::size_t index) {
  std::int64_t disabled = 0;
  for (std::size_t i = index + 1; i < kLevels.size(); ++i) disabled |= kLevels[i].targets;
  static_cast<void>(detected_targets());
  hwy::DisableTargets(disabled);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  current = index;
}

void ensure_level() {
  if (current != kUnset) return;
  const std::lock_guard lock(first_use);
  if (current == kUnset) set_cpu_level("");
}

bool onednn_serves_level() {
#ifdef DORMOUSE_ONEDNN
  ensure_level();
  const std::string_view name = kLevels[current].name;
  const bool high_enough = name != "scalar" && name != "ssse3";  // oneDNN's kernels start at SSE4.1
  return high_enough && (onednn_level == kUnset || onednn_level == current);
#else
  return false;
#endif
}

}  // namespace

std::vector<std::string> available_cpu_levels() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    if (available(i)) names.emplace_back(kLevels[i].name);
  }
  return names;
}

void set_cpu_level(std::string_view level) {
  if (!level.empty()) {
    apply(find_level(level, "--cpu"));
    return;
  }
  const char* wanted = std::getenv("DORMOUSE_CPU");
  if (wanted != nullptr && *wanted != '\0') {
    apply(find_level(wanted, "DORMOUSE_CPU"));
    return;
  }
  std::size_t best = 0;
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    if (available(i)) best = i;
  }
  apply(best);
}

std::string cpu_level() {
  ensure_level();
  return std::string(kLevels[current].name);
}

bool native_bf16() {
  ensure_level();
#if HWY_ARCH_X86 && (defined(__GNUC__) || defined(__clang__))
  return kLevels[current].name == "avx512" && __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

bool native_i16() {
  ensure_level();
#if defined(__x86_64__)
  return kLevels[current].name == "avx512" || kLevels[current].name == "avx2";
#else
  return false;
#endif
}

bool native_vnni() {
  ensure_level();
#if defined(__x86_64__)
  return kLevels[current].name == "avx512" && __builtin_cpu_supports("avx512vnni") != 0;
#else
  return false;
#endif
}

bool cpu::onednn_ready() {
  if (!onednn_serves_level()) return false;
#ifdef DORMOUSE_ONEDNN
  if (onednn_level != kUnset) return true;
  const std::lock_guard lock(first_use);
  if (onednn_level == kUnset) {
    const std::string_view name = kLevels[current].name;
    const dnnl_cpu_isa_t isa = name == "avx512" ? dnnl_cpu_isa_all : name == "avx2" ? dnnl_cpu_isa_avx2 : dnnl_cpu_isa_sse41;
    if (dnnl_set_max_cpu_isa(isa) != dnnl_success) throw base::Error("oneDNN refuses the CPU level " + std::string(name));
    onednn_level = current.load();
  }
#endif
  return true;
}

std::string gemm_library() {
#ifdef DORMOUSE_ONEDNN
  if (onednn_serves_level()) {
    const dnnl_version_t* version = dnnl_version();
    return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
  }
#endif
  return "own";
}

}  // namespace dormouse::ops
