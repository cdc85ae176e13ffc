#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "folder.h"

namespace dormouse::base {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  const auto bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

class LogTest : public tests::FolderTest {
 protected:
  void SetUp() override {
    saved_stderr_ = ::dup(STDERR_FILENO);
    ::setenv("TERM", "xterm", 1);
  }
  void TearDown() override {
    close_log_file();
    restore();
    ::close(saved_stderr_);
    if (terminal_ >= 0) ::close(terminal_);
  }
  void restore() { ::dup2(saved_stderr_, STDERR_FILENO); }

  void stderr_to_file() {
    const int descriptor = ::open((folder_ / "stderr").c_str(), O_RDWR | O_CREAT | O_APPEND, 0600);
    ASSERT_GE(descriptor, 0);
    ::dup2(descriptor, STDERR_FILENO);
    ::close(descriptor);
  }

  // stderr becomes a pseudo-terminal of 40 columns; false when the machine has none.
  bool stderr_to_terminal() {
    terminal_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal_ < 0 || ::grantpt(terminal_) != 0 || ::unlockpt(terminal_) != 0) return false;
    const int other = ::open(::ptsname(terminal_), O_RDWR | O_NOCTTY);
    if (other < 0) return false;
    winsize size = {};
    size.ws_col = 40;
    size.ws_row = 24;
    ::ioctl(other, TIOCSWINSZ, &size);
    ::dup2(other, STDERR_FILENO);
    ::close(other);
    return true;
  }
  std::string seen() {
    std::string text(4096, '\0');
    const ssize_t got = ::read(terminal_, text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }

  int saved_stderr_ = -1;
  int terminal_ = -1;
};

TEST_F(LogTest, LinesGoToStderrAndToTheFile) {
  stderr_to_file();
  log_line("before");
  open_log_file(folder_ / "log.txt");
  log_line("one");
  log_file_line("only in the file");
  log_line("\033[1;31mred\033[0m and \033[2J");
  close_log_file();
  log_line("after");
  restore();
  EXPECT_EQ(text_of(folder_ / "stderr"), "before\none\n\033[1;31mred\033[0m and \033[2J\nafter\n");
  EXPECT_EQ(text_of(folder_ / "log.txt"), "one\nonly in the file\nred and \033[2J\n");
}

TEST_F(LogTest, ALogFileIsContinued) {
  stderr_to_file();
  for (const char* line : {"one", "two"}) {
    open_log_file(folder_ / "log.txt");
    log_line(line);
    close_log_file();
  }
  restore();
  EXPECT_EQ(text_of(folder_ / "log.txt"), "one\ntwo\n");
}

TEST_F(LogTest, ALogFileThatCannotBeWrittenIsClosedWithANotice) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no writable /dev/full here";
  stderr_to_file();
  open_log_file("/dev/full");
  log_line("one");
  log_line("two");
  restore();
  const std::string text = text_of(folder_ / "stderr");
  EXPECT_EQ(text.substr(0, 4), "one\n");
  EXPECT_NE(text.find("log file closed, the log goes on here only: cannot write 4 B to \"/dev/full\": No space left"), std::string::npos)
      << text;
  EXPECT_EQ(text.substr(text.size() - 5), "\ntwo\n");
}

TEST_F(LogTest, OutsideATerminalNoProgressIsShown) {
  stderr_to_file();
  EXPECT_FALSE(stderr_is_terminal());
  EXPECT_FALSE(colours_wanted());
  show_progress(0.5, "training");
  clear_progress();
  restore();
  EXPECT_EQ(text_of(folder_ / "stderr"), "");
}

TEST_F(LogTest, OnATerminalTheBarIsClearedBeforeALine) {
  if (!stderr_to_terminal()) GTEST_SKIP() << "no pseudo-terminal here";
  EXPECT_EQ(terminal_columns(), 40);
  show_progress(0.43, "left 4m 10s");
  const std::string bar = seen();
  log_line("step 1");
  const std::string line = seen();
  log_line("step 2");
  const std::string next = seen();
  restore();
  EXPECT_EQ(bar, "\r\033[2K[####......] 43%  left 4m 10s");
  EXPECT_EQ(line, "\r\033[2Kstep 1\r\n");
  EXPECT_EQ(next, "step 2\r\n");
}

TEST_F(LogTest, ABarNeverWrapsAndTakesAnyFraction) {
  if (!stderr_to_terminal()) GTEST_SKIP() << "no pseudo-terminal here";
  std::string bars[3];
  const double fractions[] = {-1, 7, 0.0 / 0.0};
  for (int i = 0; i < 3; ++i) {
    show_progress(fractions[i], std::string(200, 'x'));
    bars[i] = seen();
  }
  clear_progress();
  const std::string cleared = seen();
  restore();
  for (const auto& bar : bars) EXPECT_EQ(bar.size(), 5U + 39U);
  EXPECT_EQ(bars[0].substr(5, 18), "[..........]  0%  ");
  EXPECT_EQ(bars[1].substr(5, 18), "[##########] 100% ");
  EXPECT_EQ(bars[2].substr(5, 18), "[..........]  0%  ");
  EXPECT_EQ(cleared, "\r\033[2K");
}

TEST_F(LogTest, ColoursObeyTheEnvironment) {
  if (!stderr_to_terminal()) GTEST_SKIP() << "no pseudo-terminal here";
  ::unsetenv("NO_COLOR");
  const bool plain = colours_wanted();
  ::setenv("NO_COLOR", "1", 1);
  const bool refused = colours_wanted();
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  show_progress(0.5, "x");
  log_line("line");
  const std::string text = seen();
  restore();
  EXPECT_TRUE(plain);
  EXPECT_FALSE(refused);
  EXPECT_EQ(text, "line\r\n");
}

}  // namespace
}  // namespace dormouse::base
