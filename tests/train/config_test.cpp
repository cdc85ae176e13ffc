#include "train/config.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/error.h"
#include "base/units.h"
#include "network/dormouse/parameters.h"
#include "support.h"
#include "train/plan.h"

namespace dormouse::train {
namespace {

Request with(const std::vector<Typed>& typed) {
  Request request;
  request.data = "text.txt";
  request.typed = typed;
  return request;
}

TEST(Config, DefaultsAreTinyForTenMinutes) {
  const RunConfig config = resolve_new(with({}));
  EXPECT_EQ(config.run.preset, "tiny");
  EXPECT_EQ(config.train.time_limit, 600);
  EXPECT_EQ(config.train.steps, 0);
  EXPECT_EQ(config.train.batch, 8);
  EXPECT_EQ(config.train.seq_len, 256);
  EXPECT_FALSE(config.train.compute.empty());
  EXPECT_GT(config.train.lr, 0);
}

TEST(Config, LaterWordsWinOverPresetAndEachOther) {
  const RunConfig config = resolve_new(with({{"max_seq_len", "64", "--set"}, {"batch", "4", "--set"}, {"batch", "2", "--batch 2"}}));
  EXPECT_EQ(config.model.max_seq_len, 64);
  EXPECT_EQ(config.train.seq_len, 64);
  EXPECT_EQ(config.train.batch, 2);
}

TEST(Config, ConfigTomlReadsBackEqual) {
  RunConfig config = resolve_new(with({{"lr", "0.0031415926535", "--lr"}, {"include", "*.txt\n*.md", "--include"}}));
  config.run.run_id = "00ff";
  config.data.path = "odd \"name\"\n\\é";
  config.data.identity = "1 2 3 a\nb";
  EXPECT_EQ(read_config(write_config(config), "config.toml"), config);
}

// A saved config keeps every key; one that came later has the meaning of the time before it, whatever its default is today.
TEST(Config, AnAbsentKeyOfASavedConfigHasItsFrozenMeaningOrIsAnError) {
  const std::map<std::string, std::string> frozen = {{"expert_init", "expert_init = \"one\""},
                                                     {"mult_dense", "mult_dense = 1.0"},
                                                     {"tensorboard", "tensorboard = false"},
                                                     {"memory_reset", "memory_reset = false"},
                                                     {"recompute", "recompute = false"}};
  const std::string whole = write_config(resolve_new(with({})));
  std::istringstream lines(whole);
  std::size_t keys = 0, found = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    ++keys;
    const std::string key = line.substr(0, equals);
    std::string without = whole;
    without.erase(without.find("\n" + line) + 1, line.size() + 1);
    if (const auto meaning = frozen.find(key); meaning != frozen.end()) {
      ++found;
      EXPECT_NE(write_config(read_config(without, "config.toml")).find("\n" + meaning->second + "\n"), std::string::npos) << key;
      continue;
    }
    try {
      read_config(without, "config.toml");
      ADD_FAILURE() << "nobody misses " << key;
    } catch (const base::Error& error) {
      EXPECT_NE(std::string(error.what()).find("lost its key \"" + key + "\""), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(keys, 50U);
  EXPECT_EQ(found, frozen.size());
}

TEST(Config, ImpossibleWordsAreUsageErrors) {
  for (const Typed& typed : std::vector<Typed>{{"no_such_key", "1", "--set no_such_key=1"},
                                               {"batch", "0", "--batch 0"},
                                               {"batch", "many", "--set batch=many"},
                                               {"seq_len", "512", "--seq-len 512"},
                                               {"opt", "sgd", "--opt sgd"},
                                               {"compute", "f16", "--set compute=f16"},
                                               {"identity", "x", "--set identity=x"}}) {
    EXPECT_THROW(resolve_new(with({typed})), base::UsageError) << typed.spelling;
  }
  EXPECT_THROW(resolve_new(with({{"n_heads", "3", "--set n_heads=3"}})), base::Error);
  EXPECT_THROW(resolve_new(with({{"steps", "3", ""}, {"time_limit", "3", ""}})), base::UsageError);
}

TEST(MemoryPlan, CountsParametersAsTheNetworkDoes) {
  for (const auto name : network::preset_names()) {
    for (const int arms : {0, 1, 2, 3}) {
      auto config = network::preset(name);
      config.use_kda = (arms & 1) != 0;
      config.use_engram = (arms & 2) != 0;
      auto parameters = network::declare_parameters(config);
      EXPECT_EQ(parameter_count(config), network::count(parameters, config)) << name << " " << arms;
    }
  }
}

TEST(MemoryPlan, SmallWithEightRowsOf512FitsInSixGibibytes) {
  Request request = with({{"batch", "8", "--batch 8"}, {"seq_len", "512", "--seq-len 512"}});
  request.preset = "small";
  const auto plan = plan_memory(resolve_new(request), 1 << 20);
  EXPECT_LT(plan.total(), 6ULL << 30) << plan.text();
  EXPECT_GT(plan.total(), 512ULL << 20) << plan.text();
}

TEST(MemoryPlan, RefusesWhatDoesNotFitAndNamesTheNumbers) {
  RunConfig config = resolve_new(with({{"batch", "65536", "--batch"}}));
  const auto plan = plan_memory(config, 1 << 20);
  EXPECT_GT(plan.total(), 500ULL << 30) << "65,536 rows of 256 bytes";
  EXPECT_THROW(refuse_above(plan, 16ULL << 30), base::Error);
  EXPECT_NO_THROW(refuse_above(plan_memory(resolve_new(with({})), 1 << 20), 1ULL << 30));
}

}  // namespace
}  // namespace dormouse::train
