#include "evaluate/anchors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "evaluate/compressors.h"
#include "evaluate/ngram.h"

namespace dormouse::evaluate {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// English-like: words of a small vocabulary drawn with a skewed law.
Bytes words(std::size_t size, std::uint64_t seed) {
  const std::vector<std::string> vocabulary = {"the ",  "mouse ", "sleeps ", "in ",    "a ",  "nest ",  "of ",      "grass, ",
                                               "and\n", "when ",  "spring ", "comes ", "it ", "wakes ", "hungry. ", "dormouse "};
  base::SplitMix64 random(seed);
  Bytes out;
  while (out.size() < size) {
    const auto& word = vocabulary[std::min(random.below(16), random.below(16))];
    out.insert(out.end(), word.begin(), word.end());
  }
  out.resize(size);
  return out;
}

double sum_of(const KneserNey& model, const Bytes& context, int order) {
  double sum = 0;
  for (int b = 0; b < 256; ++b) sum += model.probability(context, static_cast<std::uint8_t>(b), order);
  return sum;
}

std::vector<Bytes> contexts(const Bytes& fit) {
  std::vector<Bytes> out = {{}, bytes_of("zzzzzzzz"), bytes_of("qthe mou"), {0, 255, 128, 10}};
  base::SplitMix64 random(11);
  for (int i = 0; i < 30; ++i) {
    const std::size_t at = random.below(fit.size() - 8), length = 1 + random.below(8);
    out.emplace_back(fit.begin() + at, fit.begin() + at + length);
    Bytes noise(length);
    for (auto& b : noise) b = static_cast<std::uint8_t>(random.below(256));
    out.push_back(noise);
  }
  out.emplace_back(fit.end() - 7, fit.end());  // ends the fit: maybe no successor
  return out;
}

TEST(KneserNey, ProbabilitiesSumToOneForSeenAndUnseenContexts) {
  for (const Bytes& fit : {words(5000, 1), bytes_of("a"), bytes_of("aaaaaaaaaaaaaaaaa"), bytes_of("ab"), Bytes{}, words(40, 3)}) {
    const KneserNey model(fit, 8);
    const auto all = fit.size() > 100 ? contexts(fit) : std::vector<Bytes>{{}, {'a'}, {'a', 'a'}, {'x', 'b'}};
    for (const Bytes& context : all) {
      for (int order = 1; order <= 8; ++order) EXPECT_NEAR(sum_of(model, context, order), 1.0, 1e-9) << fit.size() << " order " << order;
    }
  }
}

TEST(KneserNey, EveryByteHasPositiveProbability) {
  const KneserNey model(words(3000, 2), 8);
  for (int b = 0; b < 256; ++b) EXPECT_GT(model.probability(bytes_of("the mous"), static_cast<std::uint8_t>(b), 8), 0.0);
}

TEST(KneserNey, BitsPerByteIsTheSumOfItsOwnProbabilities) {
  const Bytes fit = words(4000, 1), text = words(300, 9);
  const KneserNey model(fit, 8);
  const auto bits = model.bits_per_byte(text);
  ASSERT_EQ(bits.size(), 8U);
  for (int order = 1; order <= 8; ++order) {
    double sum = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      sum -= std::log2(model.probability(Bytes(text.begin(), text.begin() + i), text[i], order));
    }
    EXPECT_NEAR(bits[order - 1], sum / 300, 1e-9);
  }
}

// The definition, with maps and strings: independent of the trie.
class PlainKneserNey {
 public:
  explicit PlainKneserNey(std::string fit) : fit_(std::move(fit)) {
    for (int n = 1; n <= 8; ++n) {
      for (std::size_t i = 0; i + n <= fit_.size(); ++i) {
        ++raw_[n][fit_.substr(i, n)];
        left_[n][fit_.substr(i, n)][i == 0 ? -1 : fit_[i - 1]] = 1;
      }
    }
  }
  double p(const std::string& context, char w, int order) const { return level(context, w, order, order); }

 private:
  double count(const std::string& gram, int n, bool raw) const {
    if (raw) return raw_[n].contains(gram) ? raw_[n].at(gram) : 0;
    return left_[n].contains(gram) ? static_cast<double>(left_[n].at(gram).size()) : 0;
  }
  double discount(double c, int n, bool raw) const {
    double k[5] = {};
    for (const auto& [gram, unused] : raw_[n]) {
      const double value = count(gram, n, raw);
      if (value <= 4) ++k[static_cast<int>(value)];
    }
    const int i = static_cast<int>(std::min(c, 3.0));
    if (i == 0) return 0;
    const double y = k[1] / (k[1] + 2 * k[2]), d = i - (i + 1) * y * k[i + 1] / k[i];
    return k[i] > 0 && k[1] > 0 && d > 0 && d <= i ? d : i / 2.0;
  }
  double level(const std::string& context, char w, int n, int top) const {
    if (n == 0) return 1.0 / 256;
    if (static_cast<int>(context.size()) < n - 1) return level(context, w, n - 1, top);
    const std::string h = context.substr(context.size() - (n - 1));
    const bool raw = n == top;
    double total = 0, freed = 0;
    for (int b = 0; b < 256; ++b) {
      const double c = count(h + static_cast<char>(b), n, raw);
      total += c;
      if (c > 0) freed += discount(c, n, raw);
    }
    const double lower = level(context, w, n - 1, top);
    if (total == 0) return lower;
    const double c = count(h + w, n, raw);
    return ((c > 0 ? c - discount(c, n, raw) : 0) + freed * lower) / total;
  }
  std::string fit_;
  std::map<std::string, double> raw_[9];
  std::map<std::string, std::map<int, int>> left_[9];
};

TEST(KneserNey, EqualsThePlainDefinition) {
  const Bytes fit = words(400, 5);
  const KneserNey model(fit, 8);
  const PlainKneserNey plain(std::string(fit.begin(), fit.end()));
  for (const std::string context : {"", "t", "the m", "e dormou", "zzz", "qthe ", "grass, a"}) {
    for (const char next : {'o', ' ', 'e', 'z', '\n'}) {
      for (int order = 1; order <= 8; ++order) {
        const double want = plain.p(context, next, order);
        EXPECT_NEAR(model.probability(bytes_of(context), static_cast<std::uint8_t>(next), order), want, 1e-12) << context << order;
      }
    }
  }
}

TEST(KneserNey, RefusesOrdersItDoesNotHave) {
  EXPECT_THROW(KneserNey(bytes_of("abc"), 0), base::Error);
  EXPECT_THROW(KneserNey(bytes_of("abc"), 9), base::Error);
  const KneserNey model(bytes_of("abc"), 3);
  EXPECT_THROW((void)model.probability({}, 'a', 4), base::Error);
  EXPECT_EQ(model.bits_per_byte(bytes_of("cab")).size(), 3U);
}

TEST(KneserNey, HandlesAll256Bytes) {
  Bytes fit;
  for (int i = 0; i < 2048; ++i) fit.push_back(static_cast<std::uint8_t>(i * 37 % 256));
  const KneserNey model(fit, 8);
  EXPECT_NEAR(sum_of(model, {255, 36}, 5), 1.0, 1e-9);
  EXPECT_LT(model.bits_per_byte(fit)[4], 1.0);
}

TEST(WittenBell, ProbabilitiesSumToOne) {
  const Bytes fit = words(5000, 1);
  const NgramTrie trie(fit, 8);
  for (const Bytes& context : contexts(fit)) {
    for (int order = 1; order <= 8; ++order) {
      double sum = 0;
      for (int b = 0; b < 256; ++b) sum += witten_bell_probability(trie, context, static_cast<std::uint8_t>(b), order);
      EXPECT_NEAR(sum, 1.0, 1e-9);
    }
  }
}

TEST(WittenBell, MatchesAHandComputedValue) {
  // "abab": c(a)=c(b)=2, T=2: P1(a) = (2 + 2/256) / 6; after a: c(ab)=2, T=1: P2(b|a) = (2 + P1(b)) / 3.
  const NgramTrie trie(bytes_of("abab"), 2);
  const double p1 = (2 + 2.0 / 256) / 6;
  EXPECT_NEAR(witten_bell_probability(trie, {}, 'a', 1), p1, 1e-15);
  EXPECT_NEAR(witten_bell_probability(trie, bytes_of("a"), 'b', 2), (2 + p1) / 3, 1e-15);
}

TEST(Compat, MatchesTheFormulaAndIsNotADistribution) {
  // Fit "abac" (n = 4), order 2, text "ab": the a is not scored; c(ab) = 1 of 2: p = 0.75/2 + 0.25 * 2/260; divisor 2.
  const NgramTrie trie(bytes_of("abac"), 2);
  EXPECT_NEAR(compat_bits(trie, bytes_of("ab"), 2), -std::log2(0.75 / 2 + 0.25 * 2 / 260) / 2, 1e-12);
  EXPECT_NEAR(compat_bits(trie, bytes_of("ax"), 2), -std::log2(1.0 / 260) / 2, 1e-12);
  double sum = 0;
  for (int b = 0; b < 256; ++b) sum += std::exp2(-2 * compat_bits(trie, Bytes{'a', static_cast<std::uint8_t>(b)}, 2));
  EXPECT_GT(sum, 1.5);
}

TEST(Anchors, ListEveryNameOnceAndNameTheBest) {
  const Bytes fit = words(20000, 1), text = words(2000, 2);
  const auto rows = anchors(fit, text);
  std::map<std::string, Anchor> by_name;
  for (const Anchor& row : rows) EXPECT_TRUE(by_name.emplace(row.name, row).second) << row.name;
  for (const char* name : {"uniform", "unigram", "kneser-ney 1", "kneser-ney 8", "witten-bell 5", "compat 5", "gzip alone",
                           "bzip2 conditional", "xz alone", "zstd conditional", "brotli alone"}) {
    EXPECT_TRUE(by_name.contains(name)) << name;
  }
  EXPECT_EQ(by_name.at("uniform").bpb, 8.0);
  EXPECT_EQ(by_name.at("compat 5").note, "not a distribution");
  const auto best = best_kneser_ney(rows);
  ASSERT_TRUE(best);
  for (int k = 1; k <= 8; ++k) EXPECT_LE(best->bpb, by_name.at("kneser-ney " + std::to_string(k)).bpb);
  EXPECT_FALSE(best_kneser_ney({}));
  for (const Compressor& compressor : compressors()) {
    const Anchor& alone = by_name.at(std::string(compressor.name) + " alone");
    const Anchor& conditional = by_name.at(std::string(compressor.name) + " conditional");
    if (compressor.size == nullptr) {
      EXPECT_TRUE(std::isnan(alone.bpb));
      EXPECT_EQ(alone.note, "not built");
      continue;
    }
    EXPECT_GT(conditional.bpb, 0.0) << compressor.name;
    EXPECT_LT(conditional.bpb, alone.bpb) << compressor.name;
    EXPECT_LT(alone.bpb, 4.0) << compressor.name;
  }
}

// Seeded fixture, pinned: a change of the counts, the discounts or the order convention moves these by far more than the tolerance.
TEST(Anchors, FixtureGoldens) {
  const Bytes fit = words(20000, 1), text = words(2000, 2);
  const auto rows = anchors(fit, text, {.max_order = 8, .compressors = false});
  std::map<std::string, double> bpb;
  for (const Anchor& row : rows) bpb[row.name] = row.bpb;
  const std::map<std::string, double> want = {{"unigram", 3.93474},        {"compat 5", 1.12754},      {"kneser-ney 1", 3.92043},
                                              {"kneser-ney 2", 1.87009},   {"kneser-ney 4", 0.801926}, {"kneser-ney 8", 0.849944},
                                              {"witten-bell 4", 0.798112}, {"witten-bell 8", 0.887529}};
  for (const auto& [name, value] : want) EXPECT_NEAR(bpb.at(name), value, 1e-4) << name;
}

TEST(Anchors, RefuseEmptyTextAndAcceptAnEmptyFit) {
  EXPECT_THROW(anchors(bytes_of("abc"), {}), base::Error);
  const auto rows = anchors({}, bytes_of("abc"), {.max_order = 4, .compressors = false});
  for (const Anchor& row : rows) EXPECT_NEAR(row.bpb, row.name == "compat 4" ? 0.0 : 8.0, 1e-12) << row.name;
}

TEST(Anchors, CapTheFitOfCompressorsAndSaySo) {
  const auto rows = anchors(words(20000, 1), words(500, 2), {.max_order = 2, .compressors = true, .compressor_fit_limit = 4000});
  int seen = 0;
  for (const Anchor& row : rows) {
    if (row.name.ends_with(" conditional") && row.note != "not built") {
      EXPECT_EQ(row.note.find("after the last 4"), 0U) << row.note;
      ++seen;
    }
  }
  EXPECT_GE(seen, 1);  // gzip is always there
}

TEST(Anchors, ReproduceTheReferenceFiguresOfTinyshakespeare) {
  const auto path = std::filesystem::path(DORMOUSE_TEST_DIR) / "../../shared/data/tinyshakespeare.txt";
  std::ifstream file(path, std::ios::binary);
  if (!file) GTEST_SKIP() << "needs " << path << " (not part of the checkout)";
  const Bytes all((std::istreambuf_iterator<char>(file)), {});
  ASSERT_EQ(all.size(), 1115394U);
  const std::span<const std::uint8_t> bytes(all);
  const auto fit = bytes.first(all.size() - 100000), text = bytes.last(100000);
  std::map<std::string, double> bpb;
  for (const Anchor& row : anchors(fit, text, {.max_order = 8, .compressors = false})) bpb[row.name] = row.bpb;
  const std::map<std::string, double> want = {{"kneser-ney 5", 2.265}, {"kneser-ney 6", 2.210},  {"kneser-ney 7", 2.202},
                                              {"kneser-ney 8", 2.205}, {"witten-bell 4", 2.571}, {"witten-bell 5", 2.429},
                                              {"witten-bell 6", 2.472}};
  for (const auto& [name, value] : want) EXPECT_NEAR(bpb.at(name), value, 0.0006) << name;
  Bytes both(all);
  for (const Compressor& compressor : compressors()) {
    if (compressor.size == nullptr || (compressor.name != "bzip2" && compressor.name != "xz")) continue;
    const double alone = 8.0 * static_cast<double>(compressor.size(text)) / 1e5;
    const double conditional = 8.0 * static_cast<double>(compressor.size(both) - compressor.size(fit)) / 1e5;
    EXPECT_NEAR(alone, compressor.name == "xz" ? 2.986 : 2.671, 0.001);
    EXPECT_NEAR(conditional, compressor.name == "xz" ? 2.530 : 2.413, 0.001);
  }
}

}  // namespace
}  // namespace dormouse::evaluate
