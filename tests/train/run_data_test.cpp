#include "train/run_data.h"

#include <gtest/gtest.h>

#include "support.h"

namespace dormouse::train {
namespace {

namespace fs = std::filesystem;

class RunDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a.txt", "b.txt", "c.txt"}) testing::write(text_ / name, testing::some_text(60'000, name[0]));
    testing::write(eval_ / "held.txt", testing::some_text(2000));
  }
  RunConfig config(bool with_eval) const {
    RunConfig config;
    config.data.path = text_.string();
    if (with_eval) config.data.eval_path = eval_.string();
    return config;
  }
  // The data a new run finds, then the answer to a resume after change().
  template <class Change>
  std::string refusal(bool with_eval, Change&& change) {
    RunConfig run = config(with_eval);
    bind_data(run, open_data(run, directory_.path / "run"), false, "run");
    change();
    return answer(run, open_data(run, directory_.path / "run"));
  }
  static std::string answer(RunConfig& run, const RunData& data) {
    try {
      bind_data(run, data, true, "run");
    } catch (const base::Error& error) {
      return error.what();
    }
    return "accepted";
  }
  static std::string ways_out(const std::string& flag) {
    return "; bring the files back, give " + flag + " with the path they moved to, or start another run with --run";
  }
  std::string other_data(const std::string& what) const {
    return "run was trained on other data than " + text_.string() + " holds now: " + what + ways_out("--data");
  }
  std::string other_eval(const std::string& what) const {
    return "the held-out text " + eval_.string() + " of run changed: " + what + ways_out("--eval");
  }

  testing::TemporaryDirectory directory_;
  fs::path text_ = made(directory_.path / "text"), eval_ = made(directory_.path / "eval");

 private:
  static fs::path made(const fs::path& path) {
    fs::create_directories(path);
    return path;
  }
};

TEST_F(RunDataTest, OtherDataOnAResumeIsNamedByItsFirstFile) {
  EXPECT_EQ(refusal(false, [] {}), "accepted");
  EXPECT_EQ(refusal(false, [&] { testing::write(text_ / "b.txt", testing::some_text(60'001)); }),
            other_data("b.txt has 60,001 bytes and had 60,000"));
  EXPECT_EQ(refusal(false, [&] { testing::write(text_ / "c.txt", testing::some_text(60'000, 9)); }),
            other_data("c.txt has as many bytes as then, but others"));
  EXPECT_EQ(refusal(false, [&] { fs::rename(text_ / "a.txt", text_ / "d.txt"); }), other_data("a.txt is not there any more"));
  EXPECT_EQ(refusal(false, [&] { testing::write(text_ / "bb.txt", "more"); }), other_data("bb.txt is new"));
  EXPECT_EQ(refusal(true, [&] { testing::write(text_ / "b.txt", "less"); }), other_data("b.txt has 4 bytes and had 60,001"));
}

TEST_F(RunDataTest, AnotherHeldOutTextOnAResumeIsNotBlamedOnTheTrainingText) {
  EXPECT_EQ(refusal(true, [] {}), "accepted");
  EXPECT_EQ(refusal(true, [&] { testing::write(eval_ / "held.txt", "less"); }), other_eval("held.txt has 4 bytes and had 2,000"));
  EXPECT_EQ(refusal(true, [&] { testing::write(eval_ / "more.txt", "more"); }), other_eval("more.txt is new"));
}

TEST_F(RunDataTest, AnIdentityThatDiffersInNoFileIsRefusedWithAReason) {
  RunConfig run = config(true);
  auto data = open_data(run, directory_.path / "run");
  bind_data(run, data, false, "run");
  data.identity += "no file\n";
  EXPECT_EQ(answer(run, data), other_data("its list of files is another"));
}

TEST_F(RunDataTest, FilesTooManyToListAreRefusedWithoutTheirHash) {
  for (int i = 0; i < 1500; ++i) testing::write(text_ / (std::string(30, 'n') + std::to_string(i)), "a few bytes");
  const std::string unknown = " holds now: which of the files differ is not known, they were too many to list";
  const std::string begin = "run began with other data than " + text_.string();
  EXPECT_EQ(refusal(false, [&] { testing::write(text_ / "a.txt", "less text"); }), begin + unknown + ways_out("--data"));
  EXPECT_EQ(refusal(true, [&] { testing::write(eval_ / "held.txt", "less"); }),
            begin + " or " + eval_.string() + unknown + ways_out("--data or --eval"));
}

TEST_F(RunDataTest, ATextTheRunTrainedOnIsKnownByItsBytesAndAHeldOutOneIsNot) {
  RunConfig run = config(true);
  bind_data(run, open_data(run, directory_.path / "run"), false, "run");
  fs::copy_file(text_ / "b.txt", directory_.path / "copy.txt");
  EXPECT_EQ(trained_on(run.data, data::find_corpus(directory_.path / "copy.txt")), "copy.txt");
  EXPECT_EQ(trained_on(run.data, data::find_corpus(text_)), "a.txt");
  EXPECT_EQ(trained_on(run.data, data::find_corpus(eval_)), "");
  testing::write(directory_.path / "copy.txt", testing::some_text(60'000, 11));
  EXPECT_EQ(trained_on(run.data, data::find_corpus(directory_.path / "copy.txt")), "");

  testing::write(eval_ / "b.txt", testing::some_text(2000, 12));
  RunConfig twice = config(true);
  bind_data(twice, open_data(twice, directory_.path / "run"), false, "run");
  EXPECT_EQ(trained_on(twice.data, data::find_corpus(text_ / "b.txt")), "b.txt") << "its name is that of a held-out one";
  EXPECT_EQ(trained_on(twice.data, data::find_corpus(eval_)), "");

  fs::create_directory(directory_.path / "many");
  for (int i = 0; i < 40; ++i) testing::write(directory_.path / "many" / std::to_string(i), testing::some_text(2000, 100 + i));
  RunConfig carved;
  carved.data.path = (directory_.path / "many").string();
  const auto data = open_data(carved, directory_.path / "run");
  bind_data(carved, data, false, "run");
  const auto held_out = data.held_out.substr(0, data.held_out.find('\n'));
  ASSERT_EQ(held_out.find('['), std::string::npos) << "a whole file is held out";
  EXPECT_EQ(trained_on(carved.data, data::find_corpus(directory_.path / "many" / held_out)), "");
}

}  // namespace
}  // namespace dormouse::train
