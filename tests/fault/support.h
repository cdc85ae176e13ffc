// Runs of the program itself, in a directory that goes away: started with flags and faults, waited for, killed, looked at.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../train/support.h"
#include "base/error.h"
#include "format/safetensors.h"

namespace dormouse::testing {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

inline std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A started program; its stderr and stdout go to files.
class Program {
 public:
  Program(const fs::path& folder, const Words& arguments, const std::string& faults, const std::function<void()>& in_child = {})
      : err_path_(folder / "err.txt"), out_path_(folder / "out.txt") {
    static const std::string program = std::string(DORMOUSE_BUILD_DIR) + "/dormouse_faulty";
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const auto& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    fs::remove(err_path_);  // of the program before: wait_for must not read it
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
    ::unsetenv("DORMOUSE_FAULT");
    if (!faults.empty()) ::setenv("DORMOUSE_FAULT", faults.c_str(), 1);
    if (::chdir(folder.c_str()) != 0) ::_exit(98);
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    ::dup2(::open(out_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    ::dup2(::open(err_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    if (in_child) in_child();
    ::execv(program.c_str(), argv.data());
    ::_exit(97);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }
  // The exit code; 1000 + n when signal n killed it.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  // Waits until `text` stands in stderr; false after a minute or when the program ended.
  bool wait_for(const std::string& text) const {
    for (int i = 0; i < 12000; ++i) {
      if (contains(text_of(err_path_), text)) return true;
      ::siginfo_t info = {};
      if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_)
        return contains(text_of(err_path_), text);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  std::string err() const { return text_of(err_path_); }
  std::string out() const { return text_of(out_path_); }

 private:
  fs::path err_path_, out_path_;
  pid_t pid_ = -1;
};

class ProgramTest : public ::testing::Test {
 protected:
  // A text of 3,000 bytes: an epoch of the smallest network below is 21 steps.
  void SetUp() override { train::testing::write(folder() / "text.txt", train::testing::some_text(3000)); }

  const fs::path& folder() const { return directory_.path; }
  fs::path run_file(const std::string& run, const std::string& name) const { return folder() / run / name; }

  // The smallest useful network; flags are added, or take the place of these.
  static Words train(const std::string& run, const Words& flags) {
    const auto given = [&](const std::string& flag) { return std::find(flags.begin(), flags.end(), flag) != flags.end(); };
    Words words = {"train", "--data", "text.txt", "--run", run};
    for (const auto& [flag, value] :
         std::vector<std::pair<std::string, std::string>>{{"-t", "1"}, {"--batch", "4"}, {"--eval-tail", "300"}, {"--compute", "f32"}}) {
      if (!given(flag) && !(flag == "--eval-tail" && given("--eval"))) words.insert(words.end(), {flag, value});
    }
    for (const char* key : {"d_model=16", "n_heads=2", "head_dim=8", "d_ffn=16", "rank=4", "n_experts=2", "max_iter=2", "max_seq_len=32",
                            "engram_rows=32", "engram_dim=4"}) {
      words.insert(words.end(), {"--set", key});
    }
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  }
  static Words resume(const std::string& run, const Words& flags = {}) {
    Words words = {"train", "--run", run};
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  }

  int run(const Words& words, const std::string& faults = "", const std::function<void()>& in_child = {}) {
    Program program(folder(), words, faults, in_child);
    const int code = program.wait();
    err_ = program.err();
    out_ = program.out();
    return code;
  }
  // The one line of a failure; adds a failure when there is another number of them.
  std::string error_line() const {
    std::string found;
    int count = 0;
    std::istringstream lines(err_);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("error: ")) continue;
      found = line;
      ++count;
    }
    EXPECT_EQ(count, 1) << err_;
    return found;
  }

  // Every file under a final name loads, checksums verified.
  void expect_whole(const std::string& run) const {
    for (const auto& entry : fs::directory_iterator(folder() / run)) {
      if (entry.path().extension() != ".safetensors") continue;
      try {
        const format::SafetensorsFile file(entry.path());
        for (const auto& tensor : file.entries()) static_cast<void>(file.read(tensor));
      } catch (const base::Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
  void expect_no_temporary(const std::string& run) const {
    for (const auto& entry : fs::directory_iterator(folder() / run))
      EXPECT_FALSE(contains(entry.path().filename().string(), ".tmp.")) << entry.path();
  }
  std::string metadata(const fs::path& file, const std::string& key) const {
    const auto all = format::SafetensorsFile(file).metadata();
    const auto found = all.find(key);
    return found == all.end() ? "absent" : found->second;
  }
  std::int64_t step_of(const fs::path& file) const { return std::stoll(metadata(file, "step")); }

  // Tensors and position of two checkpoints are one, bit for bit.
  void expect_same(const fs::path& a, const fs::path& b) const {
    train::testing::expect_same_tensors(a, b);
    const format::SafetensorsFile first(a), second(b);
    for (const char* key : {"step", "stream", "schedule", "best_bpb", "last_bpb", "skipped", "latch", "eval_pending"})
      EXPECT_EQ(first.metadata().at(key), second.metadata().at(key)) << key;
  }

  std::string err_, out_;

 private:
  // In memory where that is offered: the tests wait for thousands of flushes.
  struct InMemory {
    InMemory() {
      if (::access("/dev/shm", W_OK | X_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
    }
  } in_memory_;
  train::testing::TemporaryDirectory directory_;
};

}  // namespace dormouse::testing
