#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "api/handles.h"
#include "api/structs.h"
#include "api/turn.h"
#include "base/clock.h"
#include "decode/printer.h"
#include "decode/sampler.h"

namespace dormouse::api {
namespace {

constexpr std::size_t kMostStops = 4096;
constexpr std::size_t kFirstOptions = offsetof(dormouse_options, text) + sizeof(int);
constexpr std::size_t kFirstGenerated = offsetof(dormouse_generated, at_stop) + sizeof(int);

dormouse_options default_options() {
  const decode::SamplerConfig config;
  return {sizeof(dormouse_options),
          config.temperature,
          config.top_k,
          config.top_p,
          config.min_p,
          config.repeat_penalty,
          /*seed*/ std::uint64_t{0},
          nullptr,
          0,
          0};
}

decode::SamplerConfig sampling_of(const dormouse_options& options) {
  const decode::SamplerConfig config{.temperature = options.temperature,
                                     .top_k = options.top_k,
                                     .top_p = options.top_p,
                                     .min_p = options.min_p,
                                     .repeat_penalty = options.repeat_penalty};
  decode::validate(config);
  return config;
}

std::vector<std::string> stops_of(const dormouse_options& options) {
  if (options.stop_count > kMostStops) throw Failure{DORMOUSE_USAGE, "more than 4096 stop strings"};
  if (options.stop_count > 0) require(options.stops, "stops of the options is NULL and stop_count is not 0");
  std::vector<std::string> stops;
  for (std::size_t i = 0; i < options.stop_count; ++i) {
    require(options.stops[i], "a stop string is NULL");
    stops.emplace_back(options.stops[i]);
  }
  return stops;
}

// What is written, on its way to the caller.
class Output {
 public:
  Output(const dormouse_options& options, Turn& turn, dormouse_sink sink, void* user)
      : turn_(turn), sink_(sink), user_(user), stops_(stops_of(options)), printer_(options.text == 0, [this](std::string_view text) {
          send(text);
        }) {}

  void put(std::uint8_t byte) {
    std::string released;
    at_stop_ = stops_.put(byte, released);
    for (const char c : released) printer_.put(static_cast<std::uint8_t>(c));
  }
  void finish() {
    for (const char c : stops_.rest()) printer_.put(static_cast<std::uint8_t>(c));
    printer_.finish();
  }
  bool at_stop() const { return at_stop_; }
  bool stopped() const { return stopped_; }

 private:
  void send(std::string_view text) {
    if (stopped_) return;
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    stopped_ = turn_.outside([&] { return sink_(user_, bytes, text.size()); }) != 0;
  }
  Turn& turn_;
  dormouse_sink sink_;
  void* user_;
  decode::StopWatch stops_;
  decode::Printer printer_;
  bool at_stop_ = false, stopped_ = false;
};

void generate(Session& session, decode::Sampler& sampler, std::span<const std::uint8_t> prompt, std::int64_t most, Output& output,
              dormouse_generated& stats) {
  constexpr std::uint8_t kNewline = '\n';
  if (prompt.empty() && session.lanes.position(0) == 0) prompt = std::span(&kNewline, 1);
  auto start = base::Clock::now();
  session.read(prompt);
  stats.prompt_bytes = prompt.size();
  stats.prompt_seconds = base::seconds_since(start);
  start = base::Clock::now();
  for (std::int64_t written = 0; (most < 0 || written < most) && !output.stopped() && !output.at_stop(); ++written) {
    const std::uint8_t byte = sampler.next(session.logits(), session.recent);
    output.put(byte);
    session.read(std::span(&byte, 1));
    ++stats.written_bytes;
  }
  if (!output.stopped()) output.finish();
  stats.write_seconds = base::seconds_since(start);
  stats.at_stop = output.at_stop() ? 1 : 0;
}

}  // namespace
}  // namespace dormouse::api

namespace api = dormouse::api;

int dormouse_options_init(dormouse_options* options, size_t size) {
  return api::call([&] {
    api::require(options, "dormouse_options_init: options is NULL");
    options->size = size;
    if (size < api::kFirstOptions || size > 4096) throw api::Failure{DORMOUSE_USAGE, "give sizeof(dormouse_options) as the size"};
    std::memset(options, 0, size);
    options->size = size;
    api::give(api::default_options(), options);
  });
}

int dormouse_sample(dormouse_session* session, dormouse_options* options, unsigned char* byte) {
  return api::call([&] {
    const api::Use use(session);
    api::require(options, "dormouse_sample: options is NULL");
    api::require(byte, "dormouse_sample: byte is NULL");
    const auto known = api::taken(*options, api::default_options(), api::kFirstOptions);
    dormouse::decode::Sampler sampler(api::sampling_of(known), known.seed);
    const api::Turn turn;
    *byte = sampler.next(use->logits(), use->recent);
    options->seed = sampler.seed();
  });
}

int dormouse_generate(dormouse_session* session, const dormouse_options* options, const unsigned char* prompt, size_t count,
                      int64_t max_bytes, dormouse_sink sink, void* user, dormouse_generated* stats) {
  return api::call([&] {
    const api::Use use(session);
    if (count > 0) api::require(prompt, "dormouse_generate: prompt is NULL");
    if (sink == nullptr) throw api::Failure{DORMOUSE_USAGE, "dormouse_generate: sink is NULL"};
    if (max_bytes < -1) throw api::Failure{DORMOUSE_USAGE, "dormouse_generate: max_bytes is negative; -1 is without end"};
    api::require_size(stats, api::kFirstGenerated);
    auto known = api::default_options();
    if (options != nullptr) known = api::taken(*options, known, api::kFirstOptions);
    dormouse::decode::Sampler sampler(api::sampling_of(known), known.seed);
    api::Turn turn;
    api::Output output(known, turn, sink, user);
    dormouse_generated done = {};
    api::generate(*use, sampler, {prompt, count}, max_bytes, output, done);
    api::give(done, stats);
    if (output.stopped()) throw api::Failure{DORMOUSE_STOPPED, "the callback asked to stop"};
  });
}
