#include "report/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace dormouse::report {
namespace {

using Json = nlohmann::json;
constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;
constexpr double kLargest = 1e15;  // step, byte and second that can be meant

double number(const Json& line, const char* key, double otherwise = kMissing) {
  const auto value = line.find(key);
  return value != line.end() && value->is_number() && std::isfinite(value->get<double>()) ? value->get<double>() : otherwise;
}

std::int64_t count(const Json& line, const char* key) {
  const auto value = line.find(key);
  return value != line.end() && value->is_number_integer() ? value->get<std::int64_t>() : 0;
}

class Reader {
 public:
  explicit Reader(History& history) : h_(history) {}
  void read(std::string_view line);
  bool is_run() const { return is_run_; }

 private:
  void rewind(double step);
  void extend(double step);
  void step(const Json& line, double at);
  void eval(const Json& line, double at);
  double wanted(const Json& line, const char* key);
  double bytes_at(double step) const { return step_bytes_ > 0 && step * step_bytes_ <= kLargest ? step * step_bytes_ : kMissing; }
  double elapsed_at(const Json& line) const { return std::clamp(number(line, "elapsed", elapsed_), 0.0, kLargest); }

  History& h_;
  bool is_run_ = false;
  double elapsed_ = 0, step_bytes_ = kMissing;
};

void Reader::read(std::string_view text) {
  const Json line = Json::parse(text, nullptr, false);
  if (!line.is_object()) {
    ++h_.unreadable;
    return;
  }
  const auto name = line.find("event");
  if (name == line.end() || !name->is_string()) return;
  const auto& event = name->get_ref<const std::string&>();
  const double at = number(line, "step");
  if (event == "start") {
    is_run_ = true;
    rewind(0);
    h_.parameters = count(line, "parameters");
    h_.window_bytes = count(line, "eval_bytes");
  } else if (event == "anchors") {
    h_.anchors.clear();
    for (const auto& [key, value] : line.items()) {
      if (value.is_number() && std::isfinite(value.get<double>())) h_.anchors.emplace_back(key, value.get<double>());
    }
  } else if (event == "step" || event == "eval" || event == "resume" || event == "extend" || event == "end") {
    if (!(at >= 0 && at <= kLargest)) {
      ++h_.unreadable;
      return;
    }
    is_run_ = true;
    h_.ended = event == "end";
    if (event == "step") step(line, at);
    if (event == "eval") eval(line, at);
    if (event == "resume") rewind(at);
    if (event == "extend") extend(at);
    if (event == "resume" || event == "extend") h_.marks.push_back({at, event});
  }
}

// The run goes on from its checkpoint after `step`: what was logged later is about to be logged again.
void Reader::rewind(double step) {
  for (auto* rows : {&h_.steps, &h_.evals}) {
    for (; !rows->empty() && !rows->back().earlier && rows->back().step > step; rows->pop_back()) ++h_.repeated;
  }
}

void Reader::extend(double step) {
  for (auto* rows : {&h_.steps, &h_.evals}) {
    for (auto& row : *rows) row.earlier = row.earlier || row.step > step;
  }
}

double Reader::wanted(const Json& line, const char* key) {
  const double value = number(line, key);
  h_.missing += std::isnan(value) ? 1 : 0;
  return value;
}

void Reader::step(const Json& line, double at) {
  rewind(std::nextafter(at, -1.0));
  elapsed_ = elapsed_at(line);
  h_.skipped = count(line, "skipped");
  const double rate = wanted(line, "bytes_per_s");
  // Rate times time per step: the bytes of a step, which never change within a run.
  if (!(step_bytes_ > 0)) step_bytes_ = std::round(rate * number(line, "ms_per_step") / 1000);
  h_.steps.push_back(
      {at, bytes_at(at), elapsed_, wanted(line, "ce"), wanted(line, "bpb"), wanted(line, "lr"), wanted(line, "gnorm"), rate, false});
}

void Reader::eval(const Json& line, double at) {
  auto& evals = h_.evals;
  if (!evals.empty() && !evals.back().earlier && evals.back().step >= at) {
    evals.pop_back();
    ++h_.repeated;
  }
  evals.push_back({at, bytes_at(at), elapsed_at(line), kMissing, wanted(line, "bpb"), kMissing, kMissing, kMissing, false});
}

}  // namespace

History read_history(const std::filesystem::path& run) {
  std::error_code ignored;
  const bool directory = std::filesystem::is_directory(run, ignored);
  const auto path = directory ? run / "metrics.jsonl" : run;
  const std::string where = base::escape(path.string());
  if (!std::filesystem::exists(path, ignored)) {
    throw base::Error(directory ? fmt::format("{} has no metrics.jsonl; give the directory of a run", base::escape(run.string()))
                                : fmt::format("{} does not exist; give the directory of a run", where));
  }
  const auto bytes = base::read_file(path, kLargestFile);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());

  History history;
  const auto absolute = std::filesystem::absolute(path).lexically_normal();
  history.name = (path.filename() == "metrics.jsonl" ? absolute.parent_path() : absolute).filename().string();
  Reader reader(history);
  while (!text.empty()) {
    const auto newline = text.find('\n');
    if (newline == std::string_view::npos) {
      history.torn_bytes = text.size();
      break;
    }
    if (newline > 0) reader.read(text.substr(0, newline));
    text.remove_prefix(newline + 1);
  }
  if (!reader.is_run() && !bytes.empty() && history.torn_bytes < bytes.size()) {
    throw base::Error(fmt::format("{} is not the metrics.jsonl of a run: no line of it tells of a start or a step", where));
  }
  if (history.steps.empty()) throw base::Error(fmt::format("{} holds no step yet; plot the run after its first log line", where));
  return history;
}

}  // namespace dormouse::report
