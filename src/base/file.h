// Files: bounded reads, atomic writes, the run lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dormouse::base {

// Owns one POSIX descriptor. Every failure throws Error naming the (escaped) path and strerror.
class File {
 public:
  static File open_read(const std::filesystem::path& path);  // regular files only; a FIFO, directory, ... is refused
  static File create(const std::filesystem::path& path);     // O_CREAT | O_TRUNC
  // The same; errors speak of `name`, which the file will have in the end.
  static File create(const std::filesystem::path& path, const std::filesystem::path& name);
  static File open_append(const std::filesystem::path& path);  // O_CREAT | O_APPEND; a FIFO is refused
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  std::uint64_t size() const;
  void read_exactly_at(std::uint64_t offset, std::span<std::uint8_t> out) const;  // short file, EIO: Damaged
  void write(std::span<const std::uint8_t> bytes);                                // handles short writes, EINTR
  void write_at(std::uint64_t offset, std::span<const std::uint8_t> bytes);
  void sync();   // fsync
  void close();  // reports a failed close
  int descriptor() const { return descriptor_; }

 private:
  File(int descriptor, std::filesystem::path path);
  int descriptor_ = -1;
  std::filesystem::path path_;
};

// The whole of a regular file; larger than `limit` bytes: Error.
std::vector<std::uint8_t> read_file(const std::filesystem::path& path, std::uint64_t limit = UINT64_MAX);
// Its first bytes, at most `count`.
std::vector<std::uint8_t> read_start(const std::filesystem::path& path, std::uint64_t count);

// use(done, piece) for bytes [at, at + bytes) of the file, in order, at most 1 MiB at a time; done: those before the piece.
void for_chunks(const File& file, std::uint64_t at, std::uint64_t bytes,
                const std::function<void(std::uint64_t done, std::span<const std::uint8_t> piece)>& use);

// `name` is what a killed writer of the file `base` leaves behind: "<base>.tmp.<digits>".
bool is_temporary_of(std::string_view name, std::string_view base);
// Whether the process that a temporary is named after is another one and lives, so that the file may still get its final name.
bool is_written_by_another(std::string_view temporary);

// Unlinks the temporaries that are being written, and lets nobody write another: for a process that ends now.
void remove_temporaries();

// Writes through `write` into "<path>.tmp.<pid>", fsyncs, renames over `path`, fsyncs the directory. On a failure the temporary is
// removed and `path` is untouched, except when only the last fsync failed: `path` is the new file then, and a power cut may undo that.
void write_file_atomically(const std::filesystem::path& path, const std::function<void(File&)>& write);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);
// The same; the file that stood under `path` is kept as `previous`, in the same directory. First `previous` becomes a hard link of it,
// so that `path` is a whole file at every instant and at most two generations and the temporary take room; where the file system has
// no hard links, two renames at the end, between which only `previous` exists.
void write_file_keeping(const std::filesystem::path& path, const std::filesystem::path& previous, const std::function<void(File&)>& write);

// flock on `path`, holding pid and host inside; held until destroyed. Throws Error naming the holder when taken.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& path);
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  // The name still leads to the locked file. Not so after its directory was renamed or removed, or the file itself: Error.
  void require_held() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace dormouse::base
