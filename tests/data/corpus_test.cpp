#include "data/corpus.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "data/glob.h"
#include "support.h"

namespace dormouse::data {
namespace {

std::vector<std::string> names(const Corpus& corpus) {
  std::vector<std::string> out;
  for (const CorpusFile& file : corpus.files) out.push_back(file.name);
  return out;
}

std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

TEST(Corpus, FindsRegularFilesSortedByRelativePath) {
  const TemporaryDirectory directory;
  for (const char* name : {"b.txt", "a/z.bin", "a.txt", "a/b/c", "Z"}) directory.write(name, "text");
  const Corpus corpus = find_corpus(directory.path());
  EXPECT_EQ(names(corpus), (std::vector<std::string>{"Z", "a.txt", "a/b/c", "a/z.bin", "b.txt"}));
  EXPECT_EQ(corpus.bytes, 20U);
  EXPECT_EQ(corpus.summary(), "5 files, 20 B");
}

TEST(Corpus, SkipsAndCountsHiddenEntriesLinksAndBuildTrees) {
  const TemporaryDirectory directory;
  directory.write("keep", "text");
  directory.write(".hidden", "text");
  directory.write(".git/config", "text");
  directory.write("build/CMakeCache.txt", "text");
  directory.write("build/deep/file", "text");
  directory.write("empty", "");
  directory.write("real/file", "text");
  std::filesystem::create_directory_symlink(directory.path() / "real", directory.path() / "link");
  std::filesystem::create_directory_symlink("..", directory.path() / "real" / "up");
  std::filesystem::create_symlink("keep", directory.path() / "second");
  const Corpus corpus = find_corpus(directory.path());
  EXPECT_EQ(names(corpus), (std::vector<std::string>{"keep", "real/file", "second"}));
  EXPECT_EQ(corpus.skipped_hidden, 2U);
  EXPECT_EQ(corpus.skipped_other, 3U);  // empty, link, real/up
  EXPECT_EQ(corpus.skipped_trees, 1U);
  EXPECT_EQ(corpus.skipped_unreadable, 0U);
  EXPECT_EQ(corpus.summary(), "3 files, 12 B; skipped 2 hidden, 3 empty or not a regular file, 1 build tree or run");
}

TEST(Corpus, SkipsTheRunsOfThisProgramBelowTheRoot) {
  const TemporaryDirectory directory;
  for (const char* name : {"config.toml", "metrics.jsonl", "lock", "best.safetensors"}) {
    directory.write(std::string("runs/a/") + name, "text");
    directory.write(name, "text");
  }
  directory.write("site/config.toml", "a config of something else");
  EXPECT_EQ(names(find_corpus(directory.path())),
            (std::vector<std::string>{"best.safetensors", "config.toml", "lock", "metrics.jsonl", "site/config.toml"}));
}

TEST(Corpus, ARootThatIsABuildTreeHiddenOrALinkIsTakenAsAsked) {
  const TemporaryDirectory directory;
  directory.write(".notes/CMakeCache.txt", "text");
  std::filesystem::create_directory_symlink(".notes", directory.path() / "link");
  EXPECT_EQ(find_corpus(directory.path() / ".notes").files.size(), 1U);
  EXPECT_EQ(find_corpus(directory.path() / "link").files.size(), 1U);
}

TEST(Corpus, NeverOpensFifosSocketsOrDevices) {
  const TemporaryDirectory directory;
  directory.write("keep", "text");
  ASSERT_EQ(mkfifo((directory.path() / "fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", directory.path() / "zero");
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  (directory.path() / "socket").native().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(fd);
  const Corpus corpus = find_corpus(directory.path());  // opening the FIFO would hang here
  EXPECT_EQ(names(corpus), std::vector<std::string>{"keep"});
  EXPECT_EQ(corpus.skipped_other, 3U);
  EXPECT_NE(message_of([&] { find_corpus(directory.path() / "fifo"); }).find("neither a regular file nor a directory"), std::string::npos);
  EXPECT_THROW(find_corpus("/dev/null"), base::Error);
}

TEST(Corpus, CountsUnreadableEntriesAndNamesTheFirst) {
  const TemporaryDirectory directory;
  directory.write("keep", "text");
  std::filesystem::create_symlink("nowhere", directory.path() / "dangling");
  std::filesystem::create_symlink("loop", directory.path() / "loop");
  const Corpus corpus = find_corpus(directory.path());
  EXPECT_EQ(corpus.skipped_unreadable, 2U);
  EXPECT_EQ(corpus.first_unreadable, "dangling");
  EXPECT_EQ(corpus.summary(), "1 file, 4 B; skipped 2 unreadable (first: dangling)");
}

TEST(Corpus, CountsFilesAndDirectoriesWithoutReadPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads files of mode 000; run as another user";
  const TemporaryDirectory directory;
  directory.write("keep", "text");
  directory.write("b-closed", "text");
  directory.write("a-closed/file", "text");
  chmod((directory.path() / "b-closed").c_str(), 0);
  chmod((directory.path() / "a-closed").c_str(), 0);
  const Corpus corpus = find_corpus(directory.path());
  chmod((directory.path() / "a-closed").c_str(), 0700);
  EXPECT_EQ(names(corpus), std::vector<std::string>{"keep"});
  EXPECT_EQ(corpus.skipped_unreadable, 2U);
  EXPECT_EQ(corpus.first_unreadable, "a-closed");
  EXPECT_THROW(find_corpus(directory.path() / "b-closed"), base::Error);
}

TEST(Corpus, TakesAnyName) {
  const TemporaryDirectory directory;
  const std::vector<std::string> odd = {"with space", "new\nline", "-rf", std::string(250, 'n'), "bad\xff\xc0utf8", "\x1b[31m", "*"};
  for (const std::string& name : odd) directory.write(name, "text");
  directory.write("dir \n/" + odd[4], "text");
  const Corpus corpus = find_corpus(directory.path());
  EXPECT_EQ(corpus.files.size(), 8U);
  EXPECT_EQ(read_corpus(corpus).size(), 32U);
  const std::string identity = data_identity(corpus);
  EXPECT_EQ(std::ranges::count(identity, '\n'), 8);
  EXPECT_EQ(identity.find('\x1b'), std::string::npos);
  EXPECT_EQ(find_corpus(directory.path() / odd[1]).files[0].name, odd[1]);
}

TEST(Corpus, NothingToReadNamesThePathAndTheReason) {
  const TemporaryDirectory directory;
  EXPECT_NE(message_of([&] { find_corpus(directory.path() / "nowhere"); }).find("No such file"), std::string::npos);
  EXPECT_NE(message_of([&] { find_corpus(directory.path()); }).find("it is empty"), std::string::npos);
  directory.write(".hidden", "text");
  EXPECT_NE(message_of([&] { find_corpus(directory.path()); }).find("1 hidden"), std::string::npos);
  EXPECT_NE(message_of([&] { find_corpus(directory.write("empty", "")); }).find("empty file"), std::string::npos);
  directory.write("a.txt", "text");
  const std::string message = message_of([&] { find_corpus(directory.path(), {.include = {"*.md"}, .exclude = {}, .skip = {}}); });
  EXPECT_NE(message.find("left out by --include"), std::string::npos) << message;
  EXPECT_NE(message.find(directory.path().string()), std::string::npos);
  EXPECT_EQ(message_of([&] { find_corpus(directory.path() / "bad\nname"); }).find('\n'), std::string::npos);
}

TEST(Corpus, IncludesExcludesAndTheRunDirectory) {
  const TemporaryDirectory directory;
  for (const char* name : {"a.txt", "b.md", "sub/c.txt", "sub/d.md", "node_modules/e.txt", "runs/x/f.txt"}) directory.write(name, "text");
  CorpusOptions options{.include = {"*.txt"}, .exclude = {"node_modules"}, .skip = {directory.path() / "sub" / ".." / "runs"}};
  EXPECT_EQ(names(find_corpus(directory.path(), options)), (std::vector<std::string>{"a.txt", "sub/c.txt"}));
  options = {.include = {"sub/*", "runs/**"}, .exclude = {"**/c.*"}, .skip = {}};
  EXPECT_EQ(names(find_corpus(directory.path(), options)), (std::vector<std::string>{"runs/x/f.txt", "sub/d.md"}));
}

TEST(Glob, MatchesStarsAndQuestionMarks) {
  EXPECT_TRUE(glob_matches("*.txt", "a/b/c.txt"));
  EXPECT_FALSE(glob_matches("a/*.txt", "a/b/c.txt"));
  EXPECT_TRUE(glob_matches("a/**.txt", "a/b/c.txt"));
  EXPECT_TRUE(glob_matches("**/c.txt", "c.txt"));
  EXPECT_TRUE(glob_matches("**/c.txt", "a/b/c.txt"));
  EXPECT_FALSE(glob_matches("**/c.txt", "a/bc.txt"));
  EXPECT_TRUE(glob_matches("a/**/c.txt", "a/c.txt"));
  EXPECT_TRUE(glob_matches("a/**", "a/b/c"));
  EXPECT_FALSE(glob_matches("a/**", "b/c"));
  EXPECT_TRUE(glob_matches("?.txt", "x.txt"));
  EXPECT_FALSE(glob_matches("?.txt", ".txt"));
  EXPECT_FALSE(glob_matches("a?b/", "a/b/"));
  EXPECT_TRUE(glob_matches("**", "a/b"));
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_TRUE(glob_matches("\xff*", "\xff\xfe"));
  EXPECT_FALSE(glob_matches(std::string(60, '*') + "b", std::string(250, 'a')));
}

std::string pattern(std::size_t size) { return random_text(size, size); }

TEST(Carve, TakesTheTailOfASingleFile) {
  const TemporaryDirectory directory;
  const std::string text = pattern(1000000);
  const Split split = carve(find_corpus(directory.write("a.txt", text)));
  EXPECT_EQ(text_of(split.held_out), text.substr(950000));
  EXPECT_EQ(split.train.bytes, 950000U);
  EXPECT_EQ(text_of(read_corpus(split.train)), text.substr(0, 950000));
  EXPECT_EQ(split.held_out_names, std::vector<std::string>{"a.txt[950000,1000000)"});
}

TEST(Carve, KeepsBetween16KibAnd1MibAndNeverMoreThanHalf) {
  const TemporaryDirectory directory;
  const auto held = [&](std::size_t size) { return carve(find_corpus(directory.write("a", std::string(size, 'x')))).held_out.size(); };
  EXPECT_EQ(held(100000), 16384U);
  EXPECT_EQ(held(20000), 10000U);
  EXPECT_EQ(held(5), 2U);
  EXPECT_EQ(held(4), 2U);
  EXPECT_EQ(held(40 << 20), 1U << 20);
  EXPECT_THROW(held(3), base::Error);
  EXPECT_THROW(held(1), base::Error);
}

TEST(Carve, TakesWholeFilesOfATreeInPathHashOrder) {
  const TemporaryDirectory directory;
  std::vector<std::string> all;
  for (int i = 0; i < 50; ++i) {
    all.push_back("f" + std::to_string(i));
    directory.write(all.back(), pattern(10000 + i));
  }
  const Corpus corpus = find_corpus(directory.path());
  const Split split = carve(corpus);
  EXPECT_EQ(split.train.bytes + split.held_out.size(), corpus.bytes);
  EXPECT_GE(split.held_out.size(), corpus.bytes / 20);
  EXPECT_EQ(split.train.files.size() + split.held_out_names.size(), 50U);
  std::ranges::sort(all, {}, [](const std::string& name) { return base::fnv1a(name); });
  all.resize(split.held_out_names.size());
  std::ranges::sort(all);
  EXPECT_EQ(split.held_out_names, all);
  std::string want;
  for (const std::string& name : all) want += pattern(10000 + std::stoi(name.substr(1)));
  EXPECT_EQ(text_of(split.held_out), want);
  for (const CorpusFile& file : split.train.files) EXPECT_EQ(std::ranges::count(all, file.name), 0);
}

TEST(Carve, AFileTooLargeForTheWindowGivesItsTail) {
  const TemporaryDirectory directory;
  directory.write("a", pattern(500000));
  directory.write("b", pattern(500001));
  const Split split = carve(find_corpus(directory.path()));
  EXPECT_EQ(split.held_out.size(), 50000U);
  EXPECT_EQ(split.train.files.size(), 2U);
  EXPECT_EQ(split.train.bytes, 950001U);
  ASSERT_EQ(split.held_out_names.size(), 1U);
  EXPECT_NE(split.held_out_names[0].find("[4500"), std::string::npos);
}

TEST(Carve, AlwaysLeavesSomethingToTrainOn) {
  const TemporaryDirectory directory;
  for (int i = 0; i < 12; ++i) {
    directory.write("f" + std::to_string(i), pattern(1 + i * 13 % 7));
    const Corpus corpus = find_corpus(directory.path());
    if (corpus.bytes < 4) continue;
    const Split split = carve(corpus);
    EXPECT_GE(split.held_out.size(), 1U);
    EXPECT_LE(split.held_out.size(), corpus.bytes / 2);
    EXPECT_EQ(split.train.bytes + split.held_out.size(), corpus.bytes);
    EXPECT_EQ(read_corpus(split.train).size(), split.train.bytes);
  }
}

TEST(Carve, TailIsExactlyTheLastBytesOfTheSortedConcatenation) {
  const TemporaryDirectory directory;
  directory.write("a", "aaaa");
  directory.write("b", "0123");
  directory.write("c", "XYZ");
  const Corpus corpus = find_corpus(directory.path());
  for (std::uint64_t tail = 1; tail < 11; ++tail) {
    const Split split = carve(corpus, tail);
    EXPECT_EQ(text_of(split.held_out), std::string("aaaa0123XYZ").substr(11 - tail));
    EXPECT_EQ(text_of(read_corpus(split.train)), std::string("aaaa0123XYZ").substr(0, 11 - tail));
    EXPECT_EQ(split.train.bytes, 11 - tail);
  }
  EXPECT_EQ(carve(corpus, 5).held_out_names, (std::vector<std::string>{"b[2,4)", "c"}));
  EXPECT_THROW(carve(corpus, 11), base::Error);
  EXPECT_THROW(carve(corpus, UINT64_MAX), base::Error);
}

TEST(Carve, HeldOutNamesAreOneLineEach) {
  const TemporaryDirectory directory;
  directory.write("new\nline", "0123456789");
  EXPECT_EQ(carve(find_corpus(directory.path()), 2).held_out_names[0].find('\n'), std::string::npos);
}

TEST(ReadCorpus, StopsAtTheLimit) {
  const TemporaryDirectory directory;
  directory.write("a", "0123");
  directory.write("b", "4567");
  const Corpus corpus = find_corpus(directory.path());
  EXPECT_EQ(text_of(read_corpus(corpus, 0)), "");
  EXPECT_EQ(text_of(read_corpus(corpus, 6)), "012345");
  EXPECT_EQ(text_of(read_corpus(corpus)), "01234567");
}

TEST(RefuseOverlap, SeesThroughLinksDotsAndMissingPaths) {
  const TemporaryDirectory directory;
  directory.write("train/sub/a", "text");
  directory.write("eval/b", "text");
  const auto root = directory.path();
  std::filesystem::create_directory_symlink(root / "train", root / "alias");
  EXPECT_NO_THROW(refuse_overlap(root / "train", root / "eval"));
  EXPECT_NO_THROW(refuse_overlap(root / "train", root / "train2"));
  EXPECT_THROW(refuse_overlap(root / "train", root / "train"), base::Error);
  EXPECT_THROW(refuse_overlap(root / "train/", root / "train"), base::Error);
  EXPECT_THROW(refuse_overlap(root / "train", root / "train/sub/a"), base::Error);
  EXPECT_THROW(refuse_overlap(root / "train/sub", root), base::Error);
  EXPECT_THROW(refuse_overlap(root / "eval/../train", root / "alias/sub"), base::Error);
  std::filesystem::create_hard_link(root / "eval/b", root / "same");
  EXPECT_THROW(refuse_overlap(root / "same", root / "eval/b"), base::Error);
}

TEST(DataIdentity, ChangesWithSizeEndsMiddleNameAndHeldOutPart) {
  const TemporaryDirectory directory;
  std::string text = pattern(300000);
  const auto identity = [&](const std::string& bytes, const char* name = "a") {
    directory.write(name, bytes);
    return data_identity(find_corpus(directory.path() / name));
  };
  std::set<std::string> seen = {identity(text)};
  EXPECT_EQ(identity(text), *seen.begin());
  for (const std::size_t at : {std::size_t{0}, std::size_t{150000}, std::size_t{299999}}) {
    std::string changed = text;
    changed[at] ^= 1;
    EXPECT_TRUE(seen.insert(identity(changed)).second) << at;
  }
  EXPECT_TRUE(seen.insert(identity(text + "x")).second);
  EXPECT_TRUE(seen.insert(identity(text, "b")).second);
  EXPECT_TRUE(seen.insert(data_identity(carve(find_corpus(directory.path() / "b")).train)).second);
  EXPECT_EQ(identity("0123456789", "small"), "10 a684c7c6 a684c7c6 a684c7c6 0 small\n");
}

}  // namespace
}  // namespace dormouse::data
