#include "report/plot.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "folder.h"
#include "report/panel.h"

namespace dormouse::report {
namespace {

namespace fs = std::filesystem;

const std::string kStart = R"({"event":"start","run_id":"0","parameters":1234,"train_bytes":9,"eval_bytes":5000})";
const std::string kAnchors =
    R"({"event":"anchors","uniform":8,"unigram":4.9,"kneser-ney 1":4.8,"kneser-ney 3":2.25,"gzip conditional":2.9,"xz conditional":2.4})";

std::string step(int at, const std::string& ce = "2.5", const std::string& gnorm = "1.5") {
  return R"({"event":"step","step":)" + std::to_string(at) + R"(,"ce":)" + ce + R"(,"bpb":3.6,"lr":0.003,"gnorm":)" + gnorm +
         R"(,"bytes_per_s":20480,"ms_per_step":100,"skipped":0,"elapsed":)" + std::to_string(at / 10.0) + "}";
}
std::string eval(int at) { return R"({"event":"eval","step":)" + std::to_string(at) + R"(,"bpb":3.7})"; }
std::string event(const std::string& name, int at) { return R"({"event":")" + name + R"(","step":)" + std::to_string(at) + "}"; }

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

// Every tag closed by its own, every attribute quoted, no stray markup: "" or what is wrong.
std::string xml_fault(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '&') {
      const auto end = text.find(';', at);
      const std::string name = end == std::string::npos ? "" : text.substr(at + 1, end - at - 1);
      if (name != "amp" && name != "lt" && name != "gt" && name != "quot" && name != "#39") return "entity &" + name;
    }
    if (static_cast<unsigned char>(text[at]) < 0x20 && text[at] != '\n') return "control byte";
    if (text[at] == '>') return "stray > at " + text.substr(at, 40);
    if (text[at] != '<') continue;
    const auto end = text.find('>', at);
    if (end == std::string::npos) return "open tag";
    std::string tag = text.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return "< inside " + tag;
    if (count(tag, "\"") % 2 != 0 || count(tag, "=") != count(tag, "\"") / 2) return "attributes of " + tag;
    at = end;
    if (tag.back() == '/') continue;
    if (tag[0] != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return "unmatched " + tag;
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

class PlotTest : public tests::FolderTest {
 protected:
  fs::path write(const std::string& name, const std::vector<std::string>& lines, const std::string& tail = "") {
    fs::create_directories(folder_ / name);
    std::ofstream file(folder_ / name / "metrics.jsonl");
    for (const auto& line : lines) file << line << "\n";
    file << tail;
    return folder_ / name;
  }
  History history(const std::vector<std::string>& lines, const std::string& tail = "") { return read_history(write("a", lines, tail)); }
  std::string refusal(const fs::path& path) {
    try {
      read_history(path);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(PlotTest, AHistoryHoldsWhatWasLogged) {
  const auto h = history({kStart, kAnchors, step(1), step(5), eval(5), event("end", 5)});
  EXPECT_EQ(h.name, "a");
  ASSERT_EQ(h.steps.size(), 2U);
  EXPECT_EQ(h.steps[1].step, 5);
  EXPECT_EQ(h.steps[1].bytes, 5 * 2048);
  EXPECT_EQ(h.steps[1].elapsed, 0.5);
  EXPECT_EQ(h.steps[1].lr, 0.003);
  ASSERT_EQ(h.evals.size(), 1U);
  EXPECT_EQ(h.evals[0].bpb, 3.7);
  EXPECT_EQ(h.evals[0].elapsed, 0.5) << "of the last logged step";
  EXPECT_EQ(h.anchors.size(), 6U);
  EXPECT_EQ(h.window_bytes, 5000);
  EXPECT_TRUE(h.ended);
  EXPECT_EQ(h.torn_bytes + static_cast<std::uint64_t>(h.unreadable + h.missing + h.repeated), 0U);
  EXPECT_EQ(read_history(folder_ / "a" / "metrics.jsonl").name, "a") << "the file itself is taken too";
}

TEST_F(PlotTest, AHalfWrittenLastLineIsLeftOutAndCounted) {
  for (const std::string line = step(2); const std::size_t cut : {std::size_t{1}, line.size() / 2, line.size()}) {
    const auto h = history({kStart, step(1)}, line.substr(0, cut));
    EXPECT_EQ(h.steps.size(), 1U);
    EXPECT_EQ(h.torn_bytes, cut);
    EXPECT_FALSE(h.ended);
  }
}

TEST_F(PlotTest, LinesThatAreNoObjectsAreCounted) {
  const auto h = history({kStart, "", "rubbish", "[1]", R"({"event":"step"})", R"({"event":"step","step":-1})", R"({"event":7})", step(1)});
  EXPECT_EQ(h.steps.size(), 1U);
  EXPECT_EQ(h.unreadable, 4);
}

TEST_F(PlotTest, NullAndAbsentValuesAreGapsAndCounted) {
  const auto h =
      history({kStart, step(1), step(2, "null", "null"), R"({"event":"step","step":3})", step(4), R"({"event":"eval","step":4})"});
  EXPECT_TRUE(std::isnan(h.steps[1].ce) && std::isnan(h.steps[1].gnorm) && std::isnan(h.steps[2].lr));
  EXPECT_EQ(h.missing, 2 + 5 + 1);
  const std::string svg = plot_svg(std::vector{h});
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_NE(svg.find("8 missing values drawn as gaps"), std::string::npos);
}

TEST_F(PlotTest, ARepeatedStretchAfterAResumeIsDrawnOnce) {
  const auto h = history({kStart, step(1), step(2), eval(2), step(3), eval(3), event("resume", 2), step(3, "9.0"), step(4)});
  ASSERT_EQ(h.steps.size(), 4U);
  EXPECT_EQ(h.steps[2].ce, 9.0);
  EXPECT_EQ(h.evals.size(), 1U);
  EXPECT_EQ(h.repeated, 2);
  ASSERT_EQ(h.marks.size(), 1U);
  const std::string svg = plot_svg(std::vector{h});
  EXPECT_EQ(count(svg, "a resumed at step 2"), 5U) << "one mark in every panel over steps";
  EXPECT_NE(svg.find("1 resume; 2 lines logged again"), std::string::npos);
}

TEST_F(PlotTest, AnExtensionKeepsTheBranchItLeaves) {
  const auto h = history({kStart, step(1), step(2), step(3), event("end", 3), event("extend", 1), step(2), step(3), step(4)});
  ASSERT_EQ(h.steps.size(), 6U);
  EXPECT_TRUE(!h.steps[0].earlier && h.steps[1].earlier && h.steps[2].earlier && !h.steps[3].earlier);
  EXPECT_EQ(h.repeated, 0);
  EXPECT_FALSE(h.ended);
  EXPECT_NE(plot_svg(std::vector{h}).find("before the extension"), std::string::npos);
}

TEST_F(PlotTest, ASecondStartInOneFileBeginsAnew) {
  const auto h = history({kStart, step(1), step(2), kStart, step(1)});
  EXPECT_EQ(h.steps.size(), 1U);
  EXPECT_EQ(h.repeated, 2);
}

TEST_F(PlotTest, WhatIsNoRunIsRefusedWithASentence) {
  EXPECT_NE(refusal(write("empty", {})).find("empty/metrics.jsonl holds no step yet"), std::string::npos);
  EXPECT_NE(refusal(write("begun", {kStart})).find("holds no step yet"), std::string::npos);
  EXPECT_NE(refusal(write("other", {R"({"loss":1})", "text"})).find("is not the metrics.jsonl of a run"), std::string::npos);
  EXPECT_NE(refusal(folder_).find("has no metrics.jsonl"), std::string::npos);
  EXPECT_NE(refusal(folder_ / "none").find("does not exist"), std::string::npos);
}

TEST_F(PlotTest, DeeplyNestedAndHugeValuesDoNoHarm) {
  const auto h = history({kStart, std::string(100000, '['), step(1, "1e999"), step(2, "1e308"), R"({"event":"step","step":1e300})",
                          R"({"event":"step","step":1e14,"elapsed":1e300,"bytes_per_s":1e300,"ms_per_step":1e300,"lr":-1})"});
  EXPECT_EQ(h.unreadable, 3) << "the nest, 1e999 and a step of 1e300";
  EXPECT_EQ(xml_fault(plot_svg(std::vector{h})), "");
}

TEST_F(PlotTest, TheSheetIsWellFormedStandsAloneAndHasEveryPanel) {
  const auto h = history({kStart, kAnchors, step(1), step(50), eval(50), step(100), eval(100)});
  for (const std::string& text : {plot_svg(std::vector{h}), plot_svg(std::vector{h, h, h})}) {
    EXPECT_EQ(xml_fault(text), "");
    for (const std::string title :
         {"Bits per byte", "Training loss", "Learning rate", "Gradient norm", "Speed", "over the bytes seen", "over training time"}) {
      EXPECT_NE(text.find(title), std::string::npos) << title;
    }
    EXPECT_NE(text.find(">kneser-ney 3 2.250<"), std::string::npos);
    EXPECT_NE(text.find(">xz 2.400<"), std::string::npos);
    EXPECT_EQ(text.find("kneser-ney 1"), std::string::npos) << "only the best of a family";
    EXPECT_NE(text.find("prefers-color-scheme:dark"), std::string::npos);
    EXPECT_EQ(count(text, "http"), 1U) << "the namespace only: nothing is fetched";
  }
  const std::string page = plot_html(std::vector{h});
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  for (const std::string word : {"<script", "src=", "@import", "url(http", "<link"}) EXPECT_EQ(page.find(word), std::string::npos) << word;
}

TEST_F(PlotTest, ARunOfOneStepIsDrawnAsDiscs) {
  const std::string svg = plot_svg(std::vector{history({kStart, step(1)})});
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count(svg, "class=\"lone\""), 7U);
}

TEST_F(PlotTest, NamesAreEscapedAndShortened) {
  auto h = history({kStart, step(1)});
  h.name = "<script>&\"'\\\n\xFF\xEF\xBF\xBF" + std::string(500, 'x');
  const std::string page = plot_html(std::vector{h});
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(xml_fault(plot_svg(std::vector{h})), "");
  EXPECT_EQ(xml_text("<a href='x'>&\"\\\n\xFF"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\\\\n\\xff");
  EXPECT_EQ(shortened("abcdefghij", 4), "ab\xE2\x80\xA6j");
  EXPECT_EQ(shortened("Größe", 5), "Größe");
}

TEST_F(PlotTest, WindowsThatDifferAreSaid) {
  auto a = history({kStart, step(1)});
  auto b = a;
  b.window_bytes = 7000;
  EXPECT_EQ(plot_svg(std::vector{a, a}).find("do not compare"), std::string::npos);
  EXPECT_NE(plot_svg(std::vector{a, b}).find("(5,000 B, 7,000 B): their figures do not compare"), std::string::npos);
}

TEST_F(PlotTest, AnchorsOfManyDifferentRunsAreFewAndTheRestIsCounted) {
  const auto h = history({kStart, kAnchors, step(1)});
  std::vector<History> runs(24, h);
  EXPECT_EQ(plot_svg(runs).find("left out"), std::string::npos) << "all on the same bytes";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (auto& anchor : runs[i].anchors) anchor.second += 0.001 * static_cast<double>(i);
  }
  const std::string svg = plot_svg(runs);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_NE(svg.find("80 anchors of runs on other bytes left out."), std::string::npos);  // 24 x 4, less 16
}

TEST_F(PlotTest, TheSizeIsBoundedHoweverLongTheRun) {
  std::vector<std::string> lines = {kStart};
  for (int i = 1; i <= 20000; ++i) {
    lines.push_back(step(i, std::to_string(2.0 + i % 7 * 0.1)));
    if (i % 5 == 0) lines.push_back(eval(i));
    if (i % 100 == 0) lines.push_back(event("resume", i));
  }
  EXPECT_LT(plot_svg(std::vector{history(lines)}).size(), 250'000U);
}

TEST_F(PlotTest, TheSameRunsGiveTheSameBytes) {
  const auto h = history({kStart, kAnchors, step(1), step(2)});
  EXPECT_EQ(plot_html(std::vector{h}), plot_html(std::vector{h}));
}

}  // namespace
}  // namespace dormouse::report
