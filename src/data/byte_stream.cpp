#include "data/byte_stream.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "data/order.h"

namespace dormouse::data {
namespace {

using Bytes = std::span<std::uint8_t>;

constexpr std::size_t kAhead = 2;  // batches made before they are asked for

// The bytes of a corpus by (file, offset): all in memory, or read each time.
class Store {
 public:
  Store(const Corpus& corpus, bool in_memory) : corpus_(&corpus), in_memory_(in_memory) {}

  void read(std::uint32_t file, std::uint64_t offset, Bytes out) {
    if (in_memory_) {
      if (bytes_.empty()) load();
      std::memcpy(out.data(), bytes_.data() + file_starts_[file] + offset, out.size());
      return;
    }
    if (!open_ || open_index_ != file) {
      open_.reset();
      open_.emplace(base::File::open_read(corpus_->files[file].path));
      open_index_ = file;
    }
    open_->read_exactly_at(offset, out);
  }

 private:
  void load() {
    std::uint64_t total = 0;
    file_starts_.clear();
    for (const CorpusFile& file : corpus_->files) {
      file_starts_.push_back(total);
      total += file.bytes();
    }
    bytes_ = read_corpus(*corpus_);
  }

  const Corpus* corpus_;
  bool in_memory_;
  std::vector<std::uint8_t> bytes_;  // in the order of corpus.files
  std::vector<std::uint64_t> file_starts_;
  std::optional<base::File> open_;
  std::uint32_t open_index_ = 0;
};

// [begin, begin + out.size()) of the epoch's concatenation.
void read_across(Store& store, const EpochOrder& order, std::uint64_t begin, Bytes out) {
  auto k = static_cast<std::size_t>(std::ranges::upper_bound(order.starts, begin) - order.starts.begin() - 1);
  while (!out.empty()) {
    const std::uint64_t offset = begin - order.starts[k];
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), order.starts[k + 1] - begin));
    store.read(order.files[k], offset, out.first(part));
    out = out.subspan(part);
    begin += part;
    ++k;
  }
}

// A generation with the bytes of its blocks, filled one block at a time.
struct Generation {
  std::shared_ptr<const EpochOrder> epoch;
  GenerationOrder order;
  std::vector<std::vector<std::uint8_t>> blocks;  // the first blocks.size() of order.blocks(); none when the corpus is in memory

  void fill_one(const Geometry& geometry, Store& store) {
    const std::uint64_t b = blocks.size();
    std::vector<std::uint8_t> bytes(order.block_windows(b) * geometry.seq_len + 1);
    read_across(store, *epoch, epoch->offset + order.first_window[b] * geometry.seq_len, bytes);
    blocks.push_back(std::move(bytes));
  }
};

// Makes batches from a position on. Belongs to one thread at a time.
class Maker {
 public:
  Maker(const Corpus& corpus, const Geometry& geometry) : corpus_(&corpus), geometry_(geometry), store_(corpus, !geometry.ring) {}

  void move_to(const ByteStream::Position& position) {
    at_ = position;
    current_.reset();
    following_.reset();
  }

  const ByteStream::Position& at() const { return at_; }

  // `keep_going` is asked before every block; false: nothing is returned and the position is in the middle of a batch.
  template <class KeepGoing>
  std::optional<Batch> make(std::int64_t rows, const KeepGoing& keep_going) {
    const std::uint64_t length = geometry_.seq_len + 1;
    Batch batch{rows, static_cast<std::int64_t>(geometry_.seq_len), {}};
    batch.bytes.resize(static_cast<std::size_t>(rows) * length);
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
      if (!current_) take_generation();
      while (geometry_.ring && current_->blocks.size() < current_->order.blocks()) {
        if (!keep_going()) return std::nullopt;
        current_->fill_one(geometry_, store_);
      }
      copy_window(current_->order.windows[at_.index], Bytes(batch.bytes).subspan(row * length, length));
      if (++at_.index == current_->order.windows.size()) {
        at_ = after(*current_);
        current_.reset();
      }
    }
    return batch;
  }

  // Fills the other half of the ring in step with the use of this one.
  template <class KeepGoing>
  void read_ahead(const KeepGoing& keep_going) {
    if (!geometry_.ring || !current_) return;
    if (!following_) following_ = generation_at(after(*current_));
    const std::uint64_t total = following_->order.blocks(), windows = current_->order.windows.size();
    const std::uint64_t wanted = std::min(total, (total * at_.index + windows - 1) / windows);
    while (following_->blocks.size() < wanted && keep_going()) following_->fill_one(geometry_, store_);
  }

 private:
  ByteStream::Position after(const Generation& generation) const {
    const std::uint64_t next = generation.order.generation + 1;
    if (next < generation.epoch->generations(geometry_)) return {generation.order.epoch, next, 0};
    return {generation.order.epoch + 1, 0, 0};
  }

  std::optional<Generation> generation_at(const ByteStream::Position& position) {
    if (!epoch_ || epoch_->epoch != position.epoch) epoch_ = std::make_shared<const EpochOrder>(geometry_, *corpus_, position.epoch);
    return Generation{epoch_, GenerationOrder(geometry_, *epoch_, position.generation), {}};
  }

  void take_generation() {
    const bool ready = following_ && following_->order.epoch == at_.epoch && following_->order.generation == at_.generation;
    current_ = ready ? std::move(following_) : generation_at(at_);
    following_.reset();
  }

  // `window` in the generation's numbering.
  void copy_window(std::uint32_t window, Bytes out) {
    const GenerationOrder& order = current_->order;
    const auto b = static_cast<std::size_t>(std::ranges::upper_bound(order.starts, window) - order.starts.begin() - 1);
    const std::uint64_t inside = (window - order.starts[b]) * geometry_.seq_len;
    if (geometry_.ring) {
      std::memcpy(out.data(), current_->blocks[b].data() + inside, out.size());
    } else {
      read_across(store_, *current_->epoch, current_->epoch->offset + order.first_window[b] * geometry_.seq_len + inside, out);
    }
  }

  const Corpus* corpus_;
  Geometry geometry_;
  Store store_;
  ByteStream::Position at_;
  std::shared_ptr<const EpochOrder> epoch_;
  std::optional<Generation> current_, following_;
};

Corpus checked(Corpus corpus, std::int64_t seq_len, std::int64_t batch) {
  if (seq_len < 1 || batch < 1) throw base::Error("batch and sequence length must be at least 1");
  const std::uint64_t windows = corpus.bytes == 0 ? 0 : (corpus.bytes - 1) / static_cast<std::uint64_t>(seq_len);
  if (windows < static_cast<std::uint64_t>(batch)) {
    const auto rows = base::human_count(static_cast<std::uint64_t>(batch)), length = base::human_count(static_cast<std::uint64_t>(seq_len));
    throw base::Error("the training text of " + base::human_count(corpus.bytes) + " bytes is below one batch: " + rows + " rows x " +
                      length + " bytes + 1; give more text, or lower --batch or --seq-len");
  }
  return corpus;
}

}  // namespace

std::string ByteStream::Position::text() const {
  return "epoch " + std::to_string(epoch) + " generation " + std::to_string(generation) + " window " + std::to_string(index);
}

struct ByteStream::Impl {
  struct Made {
    Batch batch;
    Position after;
  };

  Impl(Corpus wanted, std::int64_t seq_len, std::int64_t batch, std::uint64_t seed, std::uint64_t ring_bytes)
      : corpus(checked(std::move(wanted), seq_len, batch)),
        geometry(corpus.bytes, static_cast<std::uint64_t>(seq_len), seed, ring_bytes),
        rows(batch),
        maker(corpus, geometry) {}
  ~Impl() { stop(); }

  void start() {
    stopping = false;
    maker.move_to(position);
    worker = std::thread([this] { work(); });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    if (worker.joinable()) worker.join();
    made.clear();
    error = nullptr;
  }

  void work() {
    const auto keep_going = [this] {
      const std::lock_guard lock(mutex);
      return !stopping;
    };
    try {
      while (true) {
        std::optional<Batch> batch = maker.make(rows, keep_going);
        if (!batch) return;
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [this] { return stopping || made.size() < kAhead; });
          if (stopping) return;
          made.push_back({std::move(*batch), maker.at()});
        }
        changed.notify_all();
        maker.read_ahead(keep_going);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
    changed.notify_all();
  }

  Corpus corpus;
  Geometry geometry;
  std::int64_t rows;
  Position position;  // of the consumer

  Maker maker;  // the worker's while it runs
  std::thread worker;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;  // guarded by mutex, as are the next two
  std::deque<Made> made;
  std::exception_ptr error;  // after the batches in `made`
};

ByteStream::ByteStream(Corpus corpus, std::int64_t seq_len, std::int64_t batch, std::uint64_t seed, std::uint64_t ring_bytes)
    : impl_(std::make_unique<Impl>(std::move(corpus), seq_len, batch, seed, ring_bytes)) {}
ByteStream::~ByteStream() = default;

Batch ByteStream::next() {
  if (!impl_->worker.joinable()) impl_->start();
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return !impl_->made.empty() || impl_->error; });
  if (impl_->made.empty()) std::rethrow_exception(impl_->error);
  Impl::Made made = std::move(impl_->made.front());
  impl_->made.pop_front();
  impl_->position = made.after;
  lock.unlock();
  impl_->changed.notify_all();
  return std::move(made.batch);
}

ByteStream::Position ByteStream::position() const { return impl_->position; }

void ByteStream::seek(const Position& position) {
  const EpochOrder epoch(impl_->geometry, impl_->corpus, position.epoch);
  const auto refuse = [&](std::uint64_t count, const char* what) {
    throw base::Error("no such place in the training text: " + position.text() + " (epoch has " + std::to_string(count) + " " + what +
                      "); the text or the settings differ from those of the checkpoint");
  };
  const std::uint64_t generations = epoch.generations(impl_->geometry);
  if (position.generation >= generations) refuse(generations, "generations");
  const std::uint64_t windows = GenerationOrder(impl_->geometry, epoch, position.generation).windows.size();
  if (position.index >= windows) refuse(windows, "windows in this generation");
  impl_->stop();
  impl_->position = position;
}

std::uint64_t ByteStream::windows_in_epoch() const { return impl_->geometry.windows(impl_->position.epoch); }

}  // namespace dormouse::data
