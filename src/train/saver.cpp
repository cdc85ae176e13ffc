#include "train/saver.h"

#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/units.h"

namespace dormouse::train {
namespace {

constexpr std::uint64_t kReserve = 64U << 20;  // left free beside the copy

// "" when `action` ends well.
std::string failure_of(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const std::bad_alloc&) {
    return "out of memory while writing";
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

}  // namespace

Saver::Saver(RunDirectory directory, const base::Lock& lock, std::int64_t saved_step)
    : directory_(std::move(directory)), lock_(lock), saved_step_(saved_step) {}

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
}

// Nothing leaves it but the texts of the failures.
void Saver::write() {
  running_.error = failure_of([&] { format::write_safetensors(path_, state_.tensors, state_.metadata, previous_); });
  if (also_ && running_.error.empty()) also_running_->error = failure_of(also_);
  also_ = nullptr;
  state_ = {};
  ended_ = true;
}

// The tensors of state_ become copies of themselves. False: no memory for that, they are as they were.
bool Saver::copy() {
  std::uint64_t bytes = 0;  // beyond the copies of earlier saves
  for (const auto& [name, value] : state_.tensors) {
    if (!copies_.contains(name)) bytes += static_cast<std::uint64_t>(value.size()) * tensor::size_of(value.dtype());
  }
  const std::uint64_t available = bytes > 0 ? base::available_memory() : 0;
  if (bytes > 0 && bytes + kReserve > available) {
    if (stalled_ == 0)
      base::log_line(fmt::format("training waits while its state is saved: a copy takes {} and {} of memory is free",
                                 base::human_bytes(bytes), base::human_bytes(available)));
    return false;
  }
  try {
    std::vector<format::NamedTensor> copied;
    for (const auto& [name, value] : state_.tensors) {
      tensor::Tensor& copy = copies_[name];
      if (!copy.defined()) copy = tensor::Tensor::empty(value.shape(), value.dtype());
      copy.copy_from(value);
      copied.push_back({name, copy});
    }
    state_.tensors = std::move(copied);
    return true;
  } catch (const base::Error&) {
  } catch (const std::bad_alloc&) {
  }
  copies_.clear();
  base::log_line(fmt::format("training waits while its state is saved: no memory for a copy of {}", base::human_bytes(bytes)));
  return false;
}

void Saver::prepare(SavedState state, const std::filesystem::path& path, const std::filesystem::path& previous, std::int64_t step) {
  finish();
  lock_.require_held();
  running_ = {path.filename().string(), step, ""};
  path_ = path;
  previous_ = previous;
  state_ = std::move(state);
  ended_ = false;
}

void Saver::start() {
  if (copy()) {
    try {
      thread_ = std::thread([this] { write(); });
      return;
    } catch (const std::system_error& error) {
      base::log_line(fmt::format("training waits while its state is saved: {}", error.what()));
    }
  }
  ++stalled_;
  write();
  take_outcome();
}

void Saver::record(const SaveOutcome& outcome) {
  if (!outcome.error.empty()) {
    ++failed_;
  } else if (outcome.file == directory_.checkpoint().filename()) {
    saved_step_ = outcome.step;
  }
  outcomes_.push_back(outcome);
}

void Saver::take_outcome() {
  const bool written = running_.error.empty();
  record(running_);
  if (also_running_ && written) record(*also_running_);
  also_running_.reset();
}

void Saver::finish() {
  if (!thread_.joinable()) return;
  thread_.join();
  take_outcome();
}

std::vector<SaveOutcome> Saver::outcomes() {
  if (ended_) finish();
  return std::exchange(outcomes_, {});
}

void Saver::prepare_checkpoint(const RunConfig& config, Trainer& trainer, const Progress& progress) {
  finish();
  const bool rotate = saved_step_ >= 0 && saved_step_ != progress.step;
  prepare(checkpoint_state(config, trainer, progress), directory_.checkpoint(), rotate ? directory_.previous() : std::filesystem::path(),
          progress.step);
}

void Saver::checkpoint(const RunConfig& config, Trainer& trainer, const Progress& progress) {
  prepare_checkpoint(config, trainer, progress);
  start();
}

void Saver::checkpoint_now(const RunConfig& config, Trainer& trainer, const Progress& progress) {
  prepare_checkpoint(config, trainer, progress);
  write();
  take_outcome();
}

void Saver::stable(const RunConfig& config, Trainer& trainer, const Progress& progress) {
  prepare(checkpoint_state(config, trainer, progress), directory_.stable(), {}, progress.step);
  start();
}

void Saver::best(const RunConfig& config, Trainer& trainer, const Progress& progress) {
  prepare(weights_state(config, trainer, progress), directory_.best(), {}, progress.step);
  also_running_ = SaveOutcome{directory_.exported().filename().string(), progress.step, ""};
  also_ = [this, config, progress] { write_export(directory_.exported(), path_, config, progress, state_); };
  start();
}

void Saver::export_now(const RunConfig& config, Trainer& trainer, const Progress& progress) {
  finish();
  lock_.require_held();
  const SavedState state = weights_state(config, trainer, progress);
  SaveOutcome outcome{directory_.exported().filename().string(), progress.step, ""};
  outcome.error = failure_of([&] { write_export(directory_.exported(), directory_.checkpoint(), config, progress, state); });
  record(outcome);
}

}  // namespace dormouse::train
