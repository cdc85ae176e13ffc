// Shared by the tests of a run: a directory that goes away, a text, a small network, requests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/random.h"
#include "folder.h"
#include "format/safetensors.h"
#include "train/config.h"

namespace dormouse::train::testing {

using TemporaryDirectory = tests::TemporaryFolder;

// Every tensor of both files is equal, bit for bit: weights, moments, counts.
inline void expect_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const format::SafetensorsFile first(a), second(b);
  ASSERT_EQ(first.entries().size(), second.entries().size());
  for (const auto& entry : first.entries()) {
    const auto* other = second.find(entry.name);
    ASSERT_NE(other, nullptr) << entry.name;
    const auto x = first.read(entry), y = second.read(*other);
    ASSERT_EQ(x.shape(), y.shape()) << entry.name;
    EXPECT_EQ(std::memcmp(x.bytes(), y.bytes(), static_cast<std::size_t>(x.size()) * tensor::size_of(x.dtype())), 0) << entry.name;
  }
}

// Words of a small vocabulary: something to learn.
inline std::string some_text(std::size_t bytes, std::uint64_t seed = 7) {
  static const char* const kWords[] = {"the ", "dormouse ", "sleeps ", "in ", "a ", "teapot ", "until ", "tea.\n", "alice ", "said "};
  base::SplitMix64 random(seed);
  std::string text;
  while (text.size() < bytes) text += kWords[random.below(10)];
  text.resize(bytes);
  return text;
}

inline void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// A small network whose rows have `seq_len` bytes; Trainer takes it as it is.
inline RunConfig small_config(std::int64_t batch, std::int64_t seq_len) {
  RunConfig config;
  config.model.d_model = 16;
  config.model.n_heads = 2;
  config.model.head_dim = 8;
  config.model.d_ffn = 24;
  config.model.rank = 6;
  config.model.n_experts = 2;
  config.model.max_iter = 2;
  config.model.max_seq_len = seq_len;
  config.model.engram_rows = 64;
  config.model.engram_dim = 4;
  config.train.batch = batch;
  config.train.seq_len = seq_len;
  return config;
}

// A run of the smallest useful network on some_text; flags as "key=value".
inline Request small_request(const TemporaryDirectory& directory, const std::string& run, const std::vector<std::string>& settings) {
  const auto data = directory.path / "text.txt";
  if (!std::filesystem::exists(data)) write(data, some_text(20000));
  Request request;
  request.data = data;
  request.run_directory = directory.path / run;
  std::vector<std::string> all = {"d_model=16",  "n_heads=2",      "head_dim=8",     "d_ffn=24",     "rank=6",
                                  "max_iter=2",  "max_seq_len=32", "engram_rows=64", "engram_dim=4", "batch=4",
                                  "compute=f32", "threads=1",      "eval_bytes=1000"};
  all.insert(all.end(), settings.begin(), settings.end());
  for (const auto& setting : all) {
    const auto equals = setting.find('=');
    request.typed.push_back({setting.substr(0, equals), setting.substr(equals + 1), "--set " + setting});
  }
  return request;
}

}  // namespace dormouse::train::testing
