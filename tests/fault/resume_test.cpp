// What a resume accepts and what it refuses: every refusal is one line with a sentence of its own, and changes no file.
#include <map>

#include "support.h"

namespace dormouse::testing {
namespace {

class ResumeTest : public ProgramTest {
 protected:
  static constexpr const char* kNewest = "checkpoint.safetensors";
  static constexpr const char* kBefore = "previous.safetensors";

  // A run of 8 steps in `name`, stopped after its save of step 6; previous.safetensors is of step 4.
  void half_a_run(const std::string& name, const Words& flags = {}) {
    Words all = {"--steps", "8", "--ckpt-every", "2", "--eval-every", "100"};
    all.insert(all.end(), flags.begin(), flags.end());
    ASSERT_EQ(run(train(name, all), "rename:4:done:checkpoint"), 1000 + SIGKILL) << err_;
    ASSERT_EQ(step_of(run_file(name, kNewest)), 6);
    ASSERT_EQ(step_of(run_file(name, kBefore)), 4);
  }
  // Everything in a run but the log, which notes every start, and the lock.
  std::map<std::string, std::string> files_of(const std::string& name) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder() / name)) {
      const std::string file = entry.path().filename().string();
      if (file != "log.txt" && file != "lock") files[file] = text_of(entry.path());
    }
    return files;
  }
  void refuses(const std::string& name, const Words& flags, int code, const std::string& sentence) {
    const auto before = files_of(name);
    EXPECT_EQ(run(resume(name, flags)), code) << err_;
    EXPECT_TRUE(contains(error_line(), sentence)) << "no \"" << sentence << "\" in " << error_line();
    EXPECT_TRUE(before == files_of(name)) << "a refusal changed a file";
  }
  using Tensors = std::vector<format::NamedTensor>;
  using Metadata = std::map<std::string, std::string>;
  // Writes the file anew, checksums and all, as another program might.
  void rewrite(const fs::path& path, const std::function<void(Tensors&, Metadata&)>& change) {
    Tensors tensors;
    Metadata metadata;
    {
      const format::SafetensorsFile file(path);
      metadata = file.metadata();
      for (const auto& entry : file.entries()) tensors.push_back({entry.name, file.read(entry)});
    }
    change(tensors, metadata);
    format::write_safetensors(path, tensors, metadata);
  }
  void flip(const fs::path& path) {
    std::string bytes = text_of(path);
    bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 4);
    train::testing::write(path, bytes);
  }
  static void replace(std::string& text, const std::string& old, const std::string& fresh) {
    const auto at = text.find(old);
    ASSERT_NE(at, std::string::npos) << old;
    text.replace(at, old.size(), fresh);
  }
};

TEST_F(ResumeTest, ADamagedNewestGivesWayLoudlyToTheSaveBeforeAndIsKeptAside) {
  half_a_run("whole");
  ASSERT_EQ(run(resume("whole")), 0);
  for (const std::string damage : {"flipped", "cut", "empty", "gone", "nan", "moment"}) {
    SCOPED_TRACE(damage);
    half_a_run("a");
    const fs::path newest = run_file("a", kNewest);
    if (damage == "flipped") flip(newest);
    if (damage == "cut") fs::resize_file(newest, fs::file_size(newest) / 2);
    if (damage == "empty") fs::resize_file(newest, 0);
    if (damage == "gone") fs::remove(newest);
    if (damage == "nan" || damage == "moment") {
      rewrite(newest, [&](Tensors& tensors, Metadata&) {
        for (auto& tensor : tensors) {
          if (tensor.name == (damage == "nan" ? "model.embedding.weight" : "optimizer.embedding.weight.m"))
            tensor.value.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
        }
      });
    }
    const std::string bad = damage == "gone" ? "" : text_of(newest);
    // Killed in its first save, the run still has the save it went on from.
    ASSERT_EQ(run(resume("a"), "write:20:kill:checkpoint"), 1000 + SIGKILL) << err_;
    EXPECT_EQ(step_of(run_file("a", kBefore)), 4);
    ASSERT_EQ(run(resume("a")), 0) << err_;
    EXPECT_TRUE(contains(err_, "WARNING: ") && contains(err_, "going on from the save before it") && contains(err_, "resumed at step 4"))
        << err_;
    EXPECT_EQ(text_of(run_file("a", "damaged.safetensors")), bad);
    expect_same(run_file("whole", kNewest), run_file("a", kNewest));
    fs::remove_all(folder() / "a");
  }
}

TEST_F(ResumeTest, WithoutAnyGoodSaveItSaysWhatIsWrongWithEachAndWhatToDo) {
  half_a_run("a");
  flip(run_file("a", kNewest));
  fs::resize_file(run_file("a", kBefore), 1000);
  refuses("a", {}, 1, "cannot go on: ");
  for (const char* part :
       {"checkpoint.safetensors is damaged: tensor", "previous.safetensors is cut short", "Nothing was changed", "--run"})
    EXPECT_TRUE(contains(error_line(), part)) << part << " in " << error_line();
  fs::remove(run_file("a", kBefore));
  refuses("a", {}, 1, "there is no previous.safetensors");
}

TEST_F(ResumeTest, CheckpointsThatAreNotThisRunsAreRefusedEachWithItsSentence) {
  half_a_run("a");
  half_a_run("b", {"--seed", "2"});
  half_a_run("wide", {"--set", "d_ffn=24"});
  const std::string own = text_of(run_file("a", kNewest));
  const auto with = [&](const std::function<void(Tensors&, Metadata&)>& change, const std::string& sentence) {
    train::testing::write(run_file("a", kNewest), own);
    rewrite(run_file("a", kNewest), change);
    refuses("a", {}, 1, sentence);
  };
  for (const char* other : {"b", "wide"}) {
    fs::copy_file(run_file(other, kNewest), run_file("a", kNewest), fs::copy_options::overwrite_existing);
    refuses("a", {}, 1, "belongs to another run");
  }
  const std::string id = metadata(run_file("b", kNewest), "run_id");
  with([](Tensors&, Metadata& metadata) { metadata["dormouse.version"] = "9.1.0"; },
       "written by dormouse 9.1.0, which is newer than this program");
  with([](Tensors&, Metadata& metadata) { metadata["dormouse.kind"] = "weights"; }, "not a training checkpoint");
  with([](Tensors&, Metadata& metadata) { metadata.erase("stream"); }, "stream");
  with([](Tensors&, Metadata& metadata) { metadata["stream"] = "epoch 0 generation 0 window 90000"; },
       "no such place in the training text");
  with([](Tensors& tensors, Metadata&) { tensors.pop_back(); }, "is missing");
  with([](Tensors& tensors, Metadata&) { tensors.push_back({"optimizer.extra", tensors[0].value}); }, "belongs to no part of this run");
  with([&](Tensors& tensors, Metadata&) { std::erase_if(tensors, [](const auto& t) { return t.name == "model.embedding.weight"; }); },
       "model.embedding.weight is missing");
  with([](Tensors& tensors, Metadata&) { tensors[0].value = tensor::Tensor::zeros({2, 2}, tensor::Dtype::f32); }, " is ");
  with([](Tensors&, Metadata& metadata) { replace(metadata["config"], "equations = 1", "equations = 7"); }, "equations = 7");
  // The run's id in another preset's checkpoint: its config tells.
  const std::string run_id = metadata(run_file("a", kNewest), "run_id");
  fs::copy_file(run_file("wide", kNewest), run_file("a", kNewest), fs::copy_options::overwrite_existing);
  rewrite(run_file("a", kNewest), [&](Tensors&, Metadata& metadata) { metadata["run_id"] = run_id; });
  refuses("a", {}, 1, "`d_ffn`");
}

TEST_F(ResumeTest, AChangedOrBrokenConfigIsRefusedByItsKey) {
  half_a_run("a");
  const std::string own = text_of(run_file("a", "config.toml"));
  const auto with = [&](const std::string& old, const std::string& fresh, const std::string& sentence) {
    std::string text = own;
    replace(text, old, fresh);
    train::testing::write(run_file("a", "config.toml"), text);
    refuses("a", {}, 1, sentence);
  };
  with("lr = 0.003", "lr = 0.03", "`lr`");
  with("seed = 1", "seed = 2", "`seed`");
  with("d_ffn = 16", "d_ffn = 32", "`d_ffn`");
  with("batch = 4\n", "", "lost its key \"batch\"");
  with("batch = 4", "bacth = 4", "batch");
  with("batch = 4", "batch = \"four\"", "batch = \"four\"");
  with("equations = 1", "equations = 2", "equations = 2");
  with("version = \"0.1", "version = \"12.1", "newer than this program");
  with("[data]", "[date]", "[data] is missing");
  fs::remove(run_file("a", "config.toml"));
  refuses("a", {"--data", "text.txt"}, 1, "has checkpoint.safetensors but no config.toml");
  train::testing::write(run_file("a", "config.toml"), own);
  ASSERT_EQ(run(resume("a")), 0) << err_;
}

TEST_F(ResumeTest, WhatIsTypedAndDiffersIsRefusedAndWhatIsTypedAgainIsNot) {
  half_a_run("a");
  for (const Words& flags : std::vector<Words>{{"--lr", "0.5"},
                                               {"--batch", "8"},
                                               {"--seed", "2"},
                                               {"--set", "d_model=32"},
                                               {"--opt", "mix"},
                                               {"--preset", "nano"},
                                               {"--time-limit", "1h"}}) {
    refuses("a", flags, 2, flags[1].substr(0, 4));
    EXPECT_TRUE(contains(error_line(), "a run keeps its settings")) << error_line();
  }
  refuses("a", {"--steps", "9"}, 2, "--extend N lengthens a finished run");
  refuses("a", {"--new"}, 1, "holds a run already");
  refuses("a", {"--extend", "4"}, 2, "is not finished (step 6); go on with it first: ");
  const Words same = {"--steps", "8", "--lr", "0.003", "--batch", "4", "--log-every", "2", "--ckpt-every", "1", "-t", "2"};
  ASSERT_EQ(run(resume("a", same)), 0) << err_;
  EXPECT_TRUE(contains(text_of(run_file("a", "config.toml")), "log_every = 2"));
}

TEST_F(ResumeTest, OtherDataIsRefusedAndTheSameBytesUnderAnotherNameAreNot) {
  half_a_run("a");
  const std::string own = text_of(folder() / "text.txt");
  std::string other = own;
  other[7] = '!';
  train::testing::write(folder() / "text.txt", other);
  refuses("a", {}, 1, "was trained on other data");
  train::testing::write(folder() / "text.txt", own + "more");
  refuses("a", {}, 1, "was trained on other data");
  fs::remove(folder() / "text.txt");
  refuses("a", {}, 1, "text.txt");
  fs::create_directory(folder() / "moved");
  train::testing::write(folder() / "moved" / "text.txt", own);
  ASSERT_EQ(run(resume("a", {"--data", "moved/text.txt"})), 0) << err_;
}

TEST_F(ResumeTest, ASecondProcessIsRefusedWhileTheFirstTrains) {
  Program first(folder(), train("a", {"--steps", "100000", "--log-every", "1"}), "");
  ASSERT_TRUE(first.wait_for("\nstep 3 "));
  fs::create_directory(folder() / "second");
  fs::create_symlink(folder() / "a", folder() / "second" / "a");
  Program second(folder() / "second", resume("a"), "");
  EXPECT_EQ(second.wait(), 1);
  EXPECT_TRUE(contains(second.err(), "lock\" is held by process ") && contains(second.err(), "wait until it ends, or stop it"))
      << second.err();
  first.send(SIGTERM);
  EXPECT_EQ(first.wait(), 143) << first.err();
}

TEST_F(ResumeTest, AFinishedRunSaysSoAndExtendsFromBeforeItsDecay) {
  const Words flags = {"--steps", "20", "--eval-every", "100"};
  ASSERT_EQ(run(train("a", flags)), 0);
  const auto before = files_of("a");
  ASSERT_EQ(run(train("a", flags)), 0);
  EXPECT_TRUE(contains(err_, "a is finished: nothing left to train")) << err_;
  EXPECT_TRUE(before == files_of("a"));
  EXPECT_EQ(step_of(run_file("a", "stable.safetensors")), 13);

  // Killed anywhere in an extension it is the finished run or the extended one, and ends as the uninterrupted one.
  fs::copy(folder() / "a", folder() / "b", fs::copy_options::recursive);
  ASSERT_EQ(run(resume("a", {"--extend", "10"})), 0) << err_;
  EXPECT_TRUE(contains(err_, "extended to 30 steps, continuing from step 13"));
  for (const std::string faults :
       {"write:3:kill:checkpoint", "rename:1:kill:checkpoint", "rename:1:done:checkpoint", "rename:1:kill:config"}) {
    SCOPED_TRACE(faults);
    fs::copy(folder() / "b", folder() / "c", fs::copy_options::recursive);
    ASSERT_EQ(run(resume("c", {"--extend", "10"}), faults), 1000 + SIGKILL) << err_;
    const bool extended = step_of(run_file("c", kNewest)) == 13;
    ASSERT_EQ(run(resume("c", extended ? Words{} : Words{"--extend", "10"})), 0) << err_;
    expect_same(run_file("a", kNewest), run_file("c", kNewest));
    EXPECT_TRUE(contains(text_of(run_file("c", "config.toml")), "steps = 30"));
    fs::remove_all(folder() / "c");
  }
  EXPECT_EQ(step_of(run_file("a", "stable.safetensors")), 19) << "of 30 steps the last 35% decay";
}

TEST_F(ResumeTest, ATimeLimitCountsTheTimeBeforeTheResume) {
  Program first(folder(), train("a", {"--time-limit", "3s", "--log-every", "1"}), "");
  ASSERT_TRUE(first.wait_for("\nstep 5 "));
  first.send(SIGTERM);
  ASSERT_EQ(first.wait(), 143) << first.err();
  const double before = std::stod(metadata(run_file("a", kNewest), "elapsed"));
  EXPECT_GT(before, 0);
  ASSERT_EQ(run(resume("a")), 0) << err_;
  const std::string metrics = text_of(run_file("a", "metrics.jsonl"));
  const auto event = metrics.find("\"event\":\"resume\"");
  ASSERT_NE(event, std::string::npos);
  const std::string key = "\"elapsed\":";
  EXPECT_NEAR(std::stod(metrics.substr(metrics.find(key, event) + key.size())), before, 1e-6);
  const double all = std::stod(metadata(run_file("a", kNewest), "elapsed"));
  EXPECT_GT(all, 1.5);
  EXPECT_LT(all, 8);
}

TEST_F(ResumeTest, StdoutThatTakesNoMetricsStopsTheRunWithItsStateSaved) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no writable /dev/full here";
  const auto full = [] { ::dup2(::open("/dev/full", O_WRONLY), 1); };
  EXPECT_EQ(run(train("a", {"--steps", "20", "--json"}), "", full), 1);
  EXPECT_TRUE(contains(error_line(), "cannot write to stdout: No space left on device; stopped after step 1, the same command resumes"))
      << err_;
  EXPECT_EQ(step_of(run_file("a", kNewest)), 1);
  EXPECT_EQ(run(train("a", {"--steps", "20"})), 0) << err_;
}

}  // namespace
}  // namespace dormouse::testing
