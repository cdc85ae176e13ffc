#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"

namespace dormouse::base {
namespace {

constexpr std::size_t kLargestTransfer = std::size_t{1} << 30;  // Linux moves at most 2^31 - 4096 bytes per call
constexpr std::size_t kLongestName = 255;                       // NAME_MAX
constexpr std::string_view kTemporary = ".tmp.";

std::string shown(const std::filesystem::path& path) { return escape(path.native(), 1024); }

// What one can do about the commonest errors; "" for the others.
std::string_view way_out(int error) {
  switch (error) {
    case ENOENT:
      return "; check the name and its folder";
    case ENOTDIR:
      return "; a part of the name before the last is no folder";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; change its permissions or take another place";
    case ENAMETOOLONG:
      return "; take a shorter name";
    default:
      return "";
  }
}

[[noreturn]] void fail(std::string_view action, const std::filesystem::path& path, int error) {
  throw Error(fmt::format("cannot {} \"{}\": {}{}", action, shown(path), std::strerror(error), way_out(error)));
}

// A full disk is the failure worth numbers: what was to be written, where in the file, and what is free.
[[noreturn]] void fail_write(const std::filesystem::path& path, int descriptor, std::uint64_t bytes, int error) {
  if (error != ENOSPC && error != EDQUOT) fail(fmt::format("write {} to", human_bytes(bytes)), path, error);
  std::string room = "free space is unknown";
  struct statvfs disk = {};
  if (::fstatvfs(descriptor, &disk) == 0) {
    room = human_bytes(static_cast<std::uint64_t>(disk.f_bavail) * static_cast<std::uint64_t>(disk.f_frsize)) + " free";
  }
  throw Error(fmt::format("cannot write {} to \"{}\": {} ({}); make room there or choose another place", human_bytes(bytes), shown(path),
                          std::strerror(error), room));
}

int open_retrying(const std::filesystem::path& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no regular file";
}

// "" and embedded NULs would silently name something else.
void check_path(const std::filesystem::path& path) {
  if (path.empty()) throw Error("a file name is empty");
  if (path.native().find('\0') != std::string::npos) throw Error(fmt::format("the file name \"{}\" has a zero byte", shown(path)));
}

}  // namespace

File::File(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}

File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  path_.swap(other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File File::open_read(const std::filesystem::path& path) {
  check_path(path);
  const int descriptor = open_retrying(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);  // O_NONBLOCK: a FIFO must not hang the open
  if (descriptor < 0) fail("open", path, errno);
  File file(descriptor, path);
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) fail("inspect", path, errno);
  if (!S_ISREG(status.st_mode)) throw Error(fmt::format("cannot read \"{}\": it is {}; give a file", shown(path), kind_of(status.st_mode)));
  return file;
}

File File::create(const std::filesystem::path& path) { return create(path, path); }

File File::create(const std::filesystem::path& path, const std::filesystem::path& name) {
  check_path(path);
  const int descriptor = open_retrying(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY);
  if (descriptor < 0) fail("create", name, errno);
  return File(descriptor, name);
}

File File::open_append(const std::filesystem::path& path) {
  check_path(path);
  const int descriptor = open_retrying(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY);  // as in open_read
  if (descriptor < 0) fail("open for appending", path, errno);
  File file(descriptor, path);
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) fail("inspect", path, errno);
  if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode))
    throw Error(fmt::format("cannot append to \"{}\": it is {}; move it away", shown(path), kind_of(status.st_mode)));
  return file;
}

std::uint64_t File::size() const {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0) fail("inspect", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read_exactly_at(std::uint64_t offset, std::span<std::uint8_t> out) const {
  if (offset > INT64_MAX || out.size() > INT64_MAX - offset) fail("read", path_, EOVERFLOW);
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t part = std::min(out.size() - done, kLargestTransfer);
    const ssize_t got = ::pread(descriptor_, out.data() + done, part, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EIO) throw Damaged(fmt::format("cannot read \"{}\": {}", shown(path_), std::strerror(EIO)));
    if (got < 0) fail("read", path_, errno);
    if (got == 0) {
      throw Damaged(fmt::format("\"{}\" is too short: {} bytes wanted at offset {}, the file ends at {}", shown(path_), out.size(), offset,
                                offset + done));
    }
    done += static_cast<std::size_t>(got);
  }
}

void File::write(std::span<const std::uint8_t> bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t put = ::write(descriptor_, bytes.data() + done, std::min(bytes.size() - done, kLargestTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail_write(path_, descriptor_, bytes.size(), put < 0 ? errno : EIO);
    done += static_cast<std::size_t>(put);
  }
}

void File::write_at(std::uint64_t offset, std::span<const std::uint8_t> bytes) {
  if (offset > INT64_MAX || bytes.size() > INT64_MAX - offset) fail("write", path_, EOVERFLOW);
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t part = std::min(bytes.size() - done, kLargestTransfer);
    const ssize_t put = ::pwrite(descriptor_, bytes.data() + done, part, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail_write(path_, descriptor_, bytes.size(), put < 0 ? errno : EIO);
    done += static_cast<std::size_t>(put);
  }
}

void File::sync() {
  int result = 0;
  do {
    result = ::fsync(descriptor_);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return;
  const int error = errno;
  if (error == ENOSPC || error == EDQUOT) fail_write(path_, descriptor_, size(), error);
  fail("flush", path_, error);
}

void File::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (descriptor < 0) return;
  if (::close(descriptor) != 0 && errno != EINTR) fail("close", path_, errno);  // Linux frees the descriptor on EINTR too
}

std::vector<std::uint8_t> read_file(const std::filesystem::path& path, std::uint64_t limit) {
  const File file = File::open_read(path);
  const std::uint64_t size = file.size();
  if (size > limit) {
    throw Error(fmt::format("\"{}\" has {} ({} bytes); at most {} are read here", shown(path), human_bytes(size), size, limit));
  }
  std::vector<std::uint8_t> bytes(size);
  file.read_exactly_at(0, bytes);
  return bytes;
}

std::vector<std::uint8_t> read_start(const std::filesystem::path& path, std::uint64_t count) {
  const File file = File::open_read(path);
  std::vector<std::uint8_t> bytes(std::min(count, file.size()));
  file.read_exactly_at(0, bytes);
  return bytes;
}

void for_chunks(const File& file, std::uint64_t at, std::uint64_t bytes,
                const std::function<void(std::uint64_t done, std::span<const std::uint8_t> piece)>& use) {
  constexpr std::uint64_t kChunk = 1U << 20;
  std::vector<std::uint8_t> chunk(static_cast<std::size_t>(std::min(bytes, kChunk)));
  for (std::uint64_t done = 0; done < bytes; done += chunk.size()) {
    chunk.resize(static_cast<std::size_t>(std::min(bytes - done, kChunk)));
    file.read_exactly_at(at + done, chunk);
    use(done, chunk);
  }
}

namespace {

// The file a name stands for: links are followed, so that a link stays one; what is no regular file is refused.
std::filesystem::path real_target(const std::filesystem::path& path) {
  check_path(path);
  std::filesystem::path target = path;
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return target;
    fail("write", path, errno);
  }
  if (S_ISLNK(status.st_mode)) {
    std::error_code error;
    target = std::filesystem::canonical(path, error);
    if (error) fail("follow the link", path, error.value());
    if (::stat(target.c_str(), &status) != 0) fail("write", path, errno);
  }
  if (!S_ISREG(status.st_mode))
    throw Error(fmt::format("cannot write \"{}\": it is {}; take another name", shown(path), kind_of(status.st_mode)));
  return target;
}

// "<path>.tmp.<pid>" in the same directory; a name too long for that is cut and told apart by its hash.
std::filesystem::path temporary_of(const std::filesystem::path& path) {
  const std::string name = path.filename().native();
  std::string suffix = fmt::format("{}{}", kTemporary, ::getpid());
  if (name.size() + suffix.size() <= kLongestName) return path.parent_path() / (name + suffix);
  suffix = fmt::format(".{:016x}{}", fnv1a(name), suffix);
  return path.parent_path() / (name.substr(0, kLongestName - std::min(kLongestName, suffix.size())) + suffix);
}

void sync_directory(const std::filesystem::path& path) {
  const std::filesystem::path directory = path.parent_path().empty() ? "." : path.parent_path();
  const int descriptor = open_retrying(directory, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) fail("open the directory", directory, errno);
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (result != 0 && error != EINVAL && error != EROFS) fail("flush the directory", directory, error);  // EINVAL: not offered there
}

// Removes a temporary unless it got its final name; the list of those alive is for remove_temporaries.
class TemporaryGuard {
 public:
  explicit TemporaryGuard(const std::filesystem::path& path) : path_(path) {
    const std::scoped_lock lock(mutex);
    next_ = std::exchange(first, this);
  }
  TemporaryGuard(const TemporaryGuard&) = delete;
  TemporaryGuard& operator=(const TemporaryGuard&) = delete;
  ~TemporaryGuard() {
    const std::scoped_lock lock(mutex);
    TemporaryGuard** at = &first;
    while (*at != this) at = &(*at)->next_;
    *at = next_;
    if (armed_) ::unlink(path_.c_str());
  }
  void release() { armed_ = false; }
  static void remove_all() {
    mutex.lock();  // for good: nobody makes another, or misses his own, before the process ends
    for (const TemporaryGuard* guard = first; guard != nullptr; guard = guard->next_) ::unlink(guard->path_.c_str());
  }

 private:
  static inline std::mutex mutex;
  static inline TemporaryGuard* first = nullptr;
  const std::filesystem::path& path_;
  bool armed_ = true;
  TemporaryGuard* next_ = nullptr;
};

}  // namespace

void remove_temporaries() { TemporaryGuard::remove_all(); }

bool is_temporary_of(std::string_view name, std::string_view base) {
  if (!name.starts_with(base) || !name.substr(base.size()).starts_with(kTemporary)) return false;
  const std::string_view pid = name.substr(base.size() + kTemporary.size());
  return !pid.empty() && pid.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_written_by_another(std::string_view temporary) {
  ::pid_t pid = 0;
  const std::string_view digits = temporary.substr(temporary.rfind('.') + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  if (error != std::errc() || end != digits.data() + digits.size() || pid <= 0 || pid == ::getpid()) return false;
  return ::kill(pid, 0) == 0 || errno == EPERM;
}

namespace {

void rename_over(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail("replace", to, errno);
}

// `previous` becomes another name of `target`. False: the file system has no hard links (EPERM: link(2)), or no more of this file.
bool link_previous(const std::filesystem::path& target, const std::filesystem::path& previous) {
  const std::filesystem::path temporary = temporary_of(previous);
  ::unlink(temporary.c_str());
  TemporaryGuard guard(temporary);  // stays when both names are one file already: rename(2) then does nothing
  if (::link(target.c_str(), temporary.c_str()) != 0) {
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK) return false;
    fail("keep the file before as", previous, errno);
  }
  rename_over(temporary, previous);
  return true;
}

void replace(const std::filesystem::path& path, const std::filesystem::path* previous, const std::function<void(File&)>& write) {
  const std::filesystem::path target = real_target(path);
  const std::filesystem::path temporary = temporary_of(target);
  const bool keep = previous != nullptr && ::access(target.c_str(), F_OK) == 0;
  const bool linked = keep && link_previous(target, *previous);
  TemporaryGuard guard(temporary);
  File file = File::create(temporary, path);
  write(file);
  file.sync();
  file.close();
  if (keep && !linked) rename_over(target, *previous);
  try {
    rename_over(temporary, target);
  } catch (...) {
    if (keep && !linked) rename_over(*previous, target);
    throw;
  }
  guard.release();
  sync_directory(target);
}

}  // namespace

void write_file_atomically(const std::filesystem::path& path, const std::function<void(File&)>& write) { replace(path, nullptr, write); }

void write_file_keeping(const std::filesystem::path& path, const std::filesystem::path& previous, const std::function<void(File&)>& write) {
  replace(path, &previous, write);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  write_file_atomically(path, [&](File& file) { file.write(bytes_of(text)); });
}

namespace {

// "process 1234 on host.name", from "1234 host.name\n"; a file still being filled names nobody.
std::string holder_of(int descriptor) {
  std::array<char, 512> text = {};
  const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
  std::string_view line(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  line = line.substr(0, line.find('\n'));
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return "another process";
  return fmt::format("process {} on {}", escape(line.substr(0, space)), escape(line.substr(space + 1)));
}

}  // namespace

Lock::Lock(const std::filesystem::path& path) : path_(path) {
  check_path(path);
  const int descriptor = open_retrying(path, O_RDWR | O_CREAT | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) fail("open the lock", path, errno);
  try {
    struct stat status = {};
    if (::fstat(descriptor, &status) != 0) fail("inspect", path, errno);
    if (!S_ISREG(status.st_mode))
      throw Error(fmt::format("cannot lock \"{}\": it is {}; move it away", shown(path), kind_of(status.st_mode)));
    int result = 0;
    do {
      result = ::flock(descriptor, LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && errno == EWOULDBLOCK) {
      throw Error(fmt::format("\"{}\" is held by {}; wait until it ends, or stop it", shown(path), holder_of(descriptor)));
    }
    if (result != 0) fail("lock", path, errno);
    std::array<char, 256> host = {};
    if (::gethostname(host.data(), host.size() - 1) != 0) std::strcpy(host.data(), "?");
    const std::string text = fmt::format("{} {}\n", ::getpid(), host.data());
    if (::ftruncate(descriptor, 0) != 0) fail("write the lock", path, errno);
    const ssize_t put = ::pwrite(descriptor, text.data(), text.size(), 0);
    if (put != static_cast<ssize_t>(text.size())) fail_write(path, descriptor, text.size(), put < 0 ? errno : EIO);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  descriptor_ = descriptor;
}

void Lock::require_held() const {
  struct stat ours = {};
  struct stat named = {};
  if (::fstat(descriptor_, &ours) == 0 && ::stat(path_.c_str(), &named) == 0 && ours.st_dev == named.st_dev && ours.st_ino == named.st_ino)
    return;
  throw Error(fmt::format(
      "\"{}\" is no longer the lock this process took: its directory was renamed, removed or replaced; nothing is written there",
      shown(path_)));
}

// The file stays: removing it would let two processes lock two different files of one name.
Lock::~Lock() {
  if (::ftruncate(descriptor_, 0) != 0) errno = 0;
  ::close(descriptor_);
}

}  // namespace dormouse::base
