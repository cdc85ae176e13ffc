// Faults for the tests, linked around the program by `ld --wrap` (tests/CMakeLists.txt): dormouse_faulty is the object code of dormouse,
// which knows nothing of them. DORMOUSE_FAULT="kind:n[+]:action[:filter]", several separated by commas; n counts from 1, n+ is that one
// and all later. Each strike says "fault: " on stderr:
//   write, fsync, rename, link   calls whose path holds `filter`; stdout and stderr do not count. Actions: an errno (ENOSPC, ...), short
//                                (half the bytes), stall (a second), kill (before the call), torn (half the bytes, then kill), done (the
//                                call, then kill)
//   alloc:n:ENOMEM:bytes         allocations of at least that size
//   memory:n:none                looks at the memory that is free
//   step:n:loss|gradient         steps of this process whose loss, or one gradient, is not finite
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "ops/ops.h"
#include "optim/schedule.h"

namespace {

struct Fault {
  char kind[16] = {}, action[16] = {}, filter[64] = {};
  long n = 0;
  bool later_too = false;
  std::atomic<long> seen = 0;

  // Counts a call; true when this is one to strike.
  bool due() {
    const long now = ++seen;
    return now == n || (later_too && now > n);
  }
  bool is(const char* name) const { return std::strcmp(action, name) == 0; }
};

// No allocation here: allocations are among the faults.
std::array<Fault, 32> faults;
std::size_t fault_count = 0;

[[gnu::constructor]] void read_faults() {
  const char* at = std::getenv("DORMOUSE_FAULT");
  while (at != nullptr && *at != '\0') {
    char number[16] = {};
    Fault* fault = fault_count < faults.size() ? &faults[fault_count++] : nullptr;
    if (fault == nullptr ||
        std::sscanf(at, "%15[a-z]:%15[0-9+]:%15[A-Za-z]:%63[^,]", fault->kind, number, fault->action, fault->filter) < 3) {
      std::fprintf(stderr, "DORMOUSE_FAULT: cannot read \"%s\"\n", at);
      std::_Exit(99);
    }
    fault->n = std::atol(number);
    fault->later_too = std::strchr(number, '+') != nullptr;
    at = std::strchr(at, ',');
    if (at != nullptr) ++at;
  }
}

// Every fault of the kind counts the call; the first that is due strikes.
template <class Matches>
Fault* struck_where(const char* kind, Matches&& matches) {
  Fault* found = nullptr;
  for (std::size_t i = 0; i < fault_count; ++i) {
    Fault& fault = faults[i];
    if (std::strcmp(fault.kind, kind) == 0 && matches(fault) && fault.due() && found == nullptr) found = &fault;
  }
  if (found != nullptr) ::dprintf(2, "fault: %s %ld %s\n", kind, found->seen.load(), found->action);
  return found;
}

Fault* struck(const char* kind, const char* path) {
  return struck_where(kind, [&](const Fault& fault) { return std::strstr(path, fault.filter) != nullptr; });
}

Fault* struck(const char* kind, int descriptor) {
  if (fault_count == 0 || descriptor <= 2) return nullptr;
  char link[64], path[4096] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  if (::readlink(link, path, sizeof path - 1) < 0) return nullptr;
  return struck(kind, path);
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

int errno_of(const Fault& fault) {
  constexpr struct {
    const char* name;
    int value;
  } kNames[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EDQUOT", EDQUOT}, {"EPERM", EPERM}, {"EINTR", EINTR}, {"ENOMEM", ENOMEM}};
  for (const auto& name : kNames)
    if (fault.is(name.name)) return name.value;
  std::fprintf(stderr, "DORMOUSE_FAULT: unknown action \"%s\"\n", fault.action);
  std::_Exit(99);
}

// The call, or what the fault makes of it.
template <class Call>
auto around(const Fault* fault, Call&& call) -> decltype(call()) {
  if (fault == nullptr) return call();
  if (fault->is("kill")) die();
  if (fault->is("done")) {
    call();
    die();
  }
  if (fault->is("stall")) {
    ::usleep(1'000'000);
    return call();
  }
  errno = errno_of(*fault);
  return -1;
}

template <class Call>
ssize_t around_write(const Fault* fault, std::size_t size, Call&& call) {
  if (fault != nullptr && (fault->is("short") || fault->is("torn"))) {
    const ssize_t put = call((size + 1) / 2);
    if (fault->is("torn")) die();
    return put;
  }
  return around(fault, [&] { return call(size); });
}

bool no_memory(std::size_t size) {
  if (fault_count == 0) return false;
  return struck_where("alloc", [&](const Fault& fault) { return size >= static_cast<std::size_t>(std::atol(fault.filter)); }) != nullptr;
}

}  // namespace

extern "C" {
ssize_t __real_write(int, const void*, std::size_t);
ssize_t __wrap_write(int descriptor, const void* bytes, std::size_t size) {
  return around_write(struck("write", descriptor), size, [&](std::size_t n) { return __real_write(descriptor, bytes, n); });
}
ssize_t __real_pwrite(int, const void*, std::size_t, off_t);
ssize_t __wrap_pwrite(int descriptor, const void* bytes, std::size_t size, off_t offset) {
  return around_write(struck("write", descriptor), size, [&](std::size_t n) { return __real_pwrite(descriptor, bytes, n, offset); });
}
int __real_fsync(int);
int __wrap_fsync(int descriptor) {
  return around(struck("fsync", descriptor), [&] { return __real_fsync(descriptor); });
}
int __real_rename(const char*, const char*);
int __wrap_rename(const char* from, const char* to) {
  return around(struck("rename", to), [&] { return __real_rename(from, to); });
}
int __real_link(const char*, const char*);
int __wrap_link(const char* from, const char* to) {
  return around(struck("link", to), [&] { return __real_link(from, to); });
}
}

// Names of C++ functions: a changed signature makes the faults of its kind silent, and the tests that wait for them fail.
void* real_new(std::size_t) asm("__real__Znwm");
void* wrap_new(std::size_t) asm("__wrap__Znwm");
void* wrap_new(std::size_t size) { return no_memory(size) ? throw std::bad_alloc() : real_new(size); }
void* real_new_aligned(std::size_t, std::align_val_t, const std::nothrow_t&) asm("__real__ZnwmSt11align_val_tRKSt9nothrow_t");
void* wrap_new_aligned(std::size_t, std::align_val_t, const std::nothrow_t&) asm("__wrap__ZnwmSt11align_val_tRKSt9nothrow_t");
void* wrap_new_aligned(std::size_t size, std::align_val_t alignment, const std::nothrow_t& tag) {
  return no_memory(size) ? nullptr : real_new_aligned(size, alignment, tag);
}

std::uint64_t real_memory() asm("__real__ZN8dormouse4base16available_memoryEv");
std::uint64_t wrap_memory() asm("__wrap__ZN8dormouse4base16available_memoryEv");
std::uint64_t wrap_memory() { return struck("memory", "") != nullptr ? 0 : real_memory(); }

namespace dormouse {

using optim::Schedule, ops::OpTable;

// The learning rate is looked up once a step, before it.
bool poison_loss = false, poison_gradient = false;
double real_at(const Schedule*, std::int64_t) asm("__real__ZNK8dormouse5optim8Schedule2atEl");
double wrap_at(const Schedule*, std::int64_t) asm("__wrap__ZNK8dormouse5optim8Schedule2atEl");
double wrap_at(const Schedule* schedule, std::int64_t step) {
  if (const Fault* fault = struck("step", "")) {
    poison_loss = fault->is("loss");
    poison_gradient = fault->is("gradient");
  }
  return real_at(schedule, step);
}

const OpTable<float>& real_table(bool) asm("__real__ZN8dormouse3ops9cpu_tableEb");
const OpTable<float>& wrap_table(bool) asm("__wrap__ZN8dormouse3ops9cpu_tableEb");

// The next loss of the step, the next gradient of a norm.
void cross_entropy(const ops::CrossEntropy& shape, const float* x, const float* v, const std::uint8_t* target, float* nats, float* lse) {
  real_table(false).cross_entropy(shape, x, v, target, nats, lse);
  if (std::exchange(poison_loss, false)) nats[0] = std::numeric_limits<float>::quiet_NaN();
}
void rms_norm_backward(const ops::RmsNorm& shape, const float* x, const float* g, const float* inv, const float* dy, float* dx, float* dg) {
  real_table(false).rms_norm_backward(shape, x, g, inv, dy, dx, dg);
  if (std::exchange(poison_gradient, false)) dg[0] = std::numeric_limits<float>::infinity();
}

const OpTable<float>& wrap_table(bool portable) {
  if (fault_count == 0 || portable) return real_table(portable);
  static const OpTable<float> table = [] {
    OpTable<float> rows = real_table(false);
    rows.cross_entropy = cross_entropy;
    rows.rms_norm_backward = rms_norm_backward;
    return rows;
  }();
  return table;
}

}  // namespace dormouse
