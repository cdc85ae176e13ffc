#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/error.h"
#include "folder.h"

namespace dormouse::base {
namespace {

namespace fs = std::filesystem;

std::span<const std::uint8_t> bytes_of(std::string_view text) { return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}; }

std::string text_of(const fs::path& path) {
  const auto bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

template <class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "more than one line: " << error.what();
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

class FileTest : public tests::FolderTest {
 protected:
  std::size_t entries() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator())); }
};

TEST_F(FileTest, WritesAppendsAndReadsBack) {
  const fs::path path = folder_ / "a";
  {
    File file = File::create(path);
    file.write(bytes_of("hello "));
    file.write(bytes_of("world"));
    file.write_at(0, bytes_of("J"));
    EXPECT_EQ(file.size(), 11U);
    file.sync();
    file.close();
  }
  File::open_append(path).write(bytes_of("!"));
  EXPECT_EQ(text_of(path), "Jello world!");
  std::uint8_t part[5] = {};
  File::open_read(path).read_exactly_at(6, part);
  EXPECT_EQ(std::string(part, part + 5), "world");
}

TEST_F(FileTest, AShortFileNamesTheBytesWantedAndPresent) {
  write_file_atomically(folder_ / "a", "12345");
  std::uint8_t part[4] = {};
  const std::string message = message_of([&] { File::open_read(folder_ / "a").read_exactly_at(3, part); });
  EXPECT_TRUE(contains(message, "is too short: 4 bytes wanted at offset 3, the file ends at 5")) << message;
  EXPECT_NE(message_of([&] { File::open_read(folder_ / "a").read_exactly_at(UINT64_MAX, part); }), "");
}

TEST_F(FileTest, ReadFileRefusesMoreThanItsLimit) {
  write_file_atomically(folder_ / "a", "12345");
  EXPECT_EQ(read_file(folder_ / "a", 5).size(), 5U);
  const std::string message = message_of([&] { read_file(folder_ / "a", 4); });
  EXPECT_TRUE(contains(message, "(5 bytes); at most 4")) << message;
}

TEST_F(FileTest, AbsentAndIrregularFilesAreRefusedByNameWithoutHanging) {
  EXPECT_TRUE(contains(message_of([&] { read_file(folder_ / "none"); }), "none\": No such file or directory"));
  EXPECT_TRUE(contains(message_of([&] { read_file(folder_); }), "it is a directory"));
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_TRUE(contains(message_of([&] { read_file(folder_ / "fifo"); }), "it is a pipe"));
  EXPECT_TRUE(contains(message_of([&] { read_file("/dev/null"); }), "it is a device"));
  EXPECT_TRUE(contains(message_of([&] { read_file(""); }), "empty"));
}

TEST_F(FileTest, StrangeNamesWorkAndAreEscapedInMessages) {
  const std::string names[] = {"two\nlines", "a b", "-rf", std::string(250, 'n'), "quote\"", "\xFF\xFE", "\x1b[31m", "Größe"};
  for (const std::string& name : names) {
    const fs::path path = folder_ / name;
    write_file_atomically(path, "first");
    write_file_atomically(path, "second");
    EXPECT_EQ(text_of(path), "second") << escape(name);
    fs::remove(path);
    const std::string message = message_of([&] { read_file(path); });
    EXPECT_TRUE(contains(message, escape(name, 1024))) << message;
  }
  EXPECT_EQ(entries(), 0U);
}

TEST_F(FileTest, NamesRelativeToTheCurrentFolderWork) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  write_file_atomically("-x", "text");
  const std::string read = text_of("-x");
  fs::current_path(before);
  EXPECT_EQ(read, "text");
}

TEST_F(FileTest, AnAtomicWriteThatFailsLeavesTheOldFileAndNoTemporary) {
  const fs::path path = folder_ / "a";
  write_file_atomically(path, "old");
  EXPECT_THROW(write_file_atomically(path,
                                     [&](File& file) {
                                       file.write(bytes_of("half"));
                                       EXPECT_EQ(entries(), 2U);
                                       EXPECT_EQ(text_of(path), "old");
                                       throw std::runtime_error("power cut");
                                     }),
               std::runtime_error);
  EXPECT_EQ(text_of(path), "old");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, AnAtomicWriteOverAFolderOrADeviceIsRefused) {
  EXPECT_TRUE(contains(message_of([&] { write_file_atomically(folder_, "x"); }), "it is a directory"));
  EXPECT_TRUE(contains(message_of([&] { write_file_atomically("/dev/null", "x"); }), "it is a device"));
  EXPECT_EQ(entries(), 0U);
  EXPECT_TRUE(contains(message_of([&] { write_file_atomically(folder_ / "no" / "a", "x"); }), "No such file or directory"));
}

TEST_F(FileTest, AKeepingWriteLeavesTheFileBeforeUnderItsOtherName) {
  const fs::path path = folder_ / "a", previous = folder_ / "b";
  const auto write = [&](std::string_view text) {
    write_file_keeping(path, previous, [&](File& file) {
      EXPECT_TRUE(!fs::exists(path) || fs::equivalent(path, previous)) << "the new file takes the room of the oldest";
      file.write(bytes_of(text));
    });
  };
  write("first");
  EXPECT_FALSE(fs::exists(previous));
  write("second");
  EXPECT_EQ(text_of(previous), "first");
  EXPECT_THROW(write_file_keeping(path, previous, [](File&) { throw std::runtime_error("power cut"); }), std::runtime_error);
  EXPECT_EQ(text_of(path), "second");
  EXPECT_EQ(entries(), 2U);
  write("third");  // both names are one file now
  EXPECT_EQ(text_of(path), "third");
  EXPECT_EQ(text_of(previous), "second");
  EXPECT_EQ(entries(), 2U);
}

TEST_F(FileTest, TemporariesAreToldFromOtherFiles) {
  EXPECT_TRUE(is_written_by_another("a.tmp." + std::to_string(::getppid())));
  EXPECT_FALSE(is_written_by_another("a.tmp." + std::to_string(::getpid()))) << "left by a process that had this number before";
  for (const char* name : {"a.tmp.999999999", "a.tmp.99999999999", "a.tmp.", "a", "a.tmp.0"})
    EXPECT_FALSE(is_written_by_another(name)) << name;
  for (const char* name : {"a.tmp.1", "a.tmp.98765"}) EXPECT_TRUE(is_temporary_of(name, "a")) << name;
  for (const char* name : {"a", "a.tmp.", "a.tmp.x", "a.tmp.1x", "b.tmp.1", "ab.tmp.1", "notes.tmp.txt"})
    EXPECT_FALSE(is_temporary_of(name, "a")) << name;
}

TEST_F(FileTest, AnAtomicWriteThroughALinkKeepsTheLink) {
  write_file_atomically(folder_ / "real", "old");
  fs::create_symlink("real", folder_ / "link");
  write_file_atomically(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(text_of(folder_ / "real"), "new");
  EXPECT_EQ(entries(), 2U);
}

TEST_F(FileTest, AFullDeviceIsReportedWithTheBytesAndTheWayOut) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no writable /dev/full here";
  const std::string message = message_of([&] { File::create("/dev/full").write(std::vector<std::uint8_t>(3000)); });
  EXPECT_TRUE(contains(message, "cannot write 3.0 kB to \"/dev/full\": No space left on device (")) << message;
  EXPECT_TRUE(contains(message, "free); make room there or choose another place")) << message;
}

// RLIMIT_FSIZE stands for the disk that fills up in the middle of a save.
TEST_F(FileTest, AWriteThatFailsHalfwayLeavesTheOldFileAndNoTemporary) {
  const fs::path path = folder_ / "a";
  write_file_atomically(path, "old");
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {1000, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of([&] { write_file_atomically(path, std::string(5000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(contains(message, "cannot write 5.0 kB to")) << message;
  EXPECT_TRUE(contains(message, "File too large")) << message;
  EXPECT_EQ(text_of(path), "old");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, MovedFilesCloseOnce) {
  File first = File::create(folder_ / "a");
  const int descriptor = first.descriptor();
  File second = std::move(first);
  EXPECT_EQ(second.descriptor(), descriptor);
  EXPECT_EQ(first.descriptor(), -1);
  second = File::create(folder_ / "b");
  second.close();
  second.close();
}

TEST_F(FileTest, ALockNamesItsHolderAndEndsWithIt) {
  const fs::path path = folder_ / "lock";
  {
    const Lock lock(path);
    const std::string message = message_of([&] { Lock again(path); });
    EXPECT_TRUE(contains(message, "is held by process " + std::to_string(::getpid()) + " on ")) << message;
    EXPECT_TRUE(contains(text_of(path), std::to_string(::getpid()) + " "));
  }
  const Lock again(path);
}

TEST_F(FileTest, ALockOfAKilledProcessIsFree) {
  const fs::path path = folder_ / "lock";
  int ready[2] = {};
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const Lock lock(path);
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string message = message_of([&] { Lock lock(path); });
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(contains(message, "process " + std::to_string(child))) << message;
  const Lock free(path);  // the stale pid inside does not matter
}

TEST_F(FileTest, ALockIsHeldOnlyWhileItsNameLeadsToIt) {
  fs::create_directory(folder_ / "run");
  const Lock lock(folder_ / "run" / "lock");
  EXPECT_NO_THROW(lock.require_held());
  fs::rename(folder_ / "run", folder_ / "moved");
  EXPECT_THROW(lock.require_held(), Error) << "its directory has another name";
  fs::create_directory(folder_ / "run");
  const Lock other(folder_ / "run" / "lock");
  EXPECT_THROW(lock.require_held(), Error) << "another lock has its name";
  EXPECT_NO_THROW(other.require_held());
  fs::remove(folder_ / "run" / "lock");
  EXPECT_THROW(other.require_held(), Error) << "its file is gone";
}

TEST_F(FileTest, TheHolderInALockFileIsEscaped) {
  const fs::path path = folder_ / "lock";
  const Lock lock(path);
  File::create(path).write(bytes_of("1 evil\x1b[2J\n"));
  const std::string message = message_of([&] { Lock again(path); });
  EXPECT_TRUE(contains(message, "process 1 on evil\\x1b[2J")) << message;
}

}  // namespace
}  // namespace dormouse::base
