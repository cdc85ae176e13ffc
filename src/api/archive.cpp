#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <span>

#include "api/handles.h"
#include "api/structs.h"
#include "api/turn.h"

namespace dormouse::api {
namespace {

constexpr std::size_t kFirstArchived = offsetof(dormouse_archived, raw_blocks) + sizeof(std::uint64_t);

// The callbacks of one call, outside of its turn.
struct Streams {
  Turn& turn;
  dormouse_source source;
  void* source_user;
  dormouse_sink sink;
  void* sink_user;
  bool ended = false;

  // Whole buffers but the last, as decode::ReadBytes is defined.
  std::size_t read(std::span<std::uint8_t> out) {
    std::size_t at = 0;
    while (at < out.size() && !ended) {
      std::size_t got = 0;
      const auto left = out.subspan(at);
      if (turn.outside([&] { return source(source_user, left.data(), left.size(), &got); }) != 0) stop();
      if (got > left.size()) throw Failure{DORMOUSE_USAGE, "the source says more bytes than there was room for"};
      ended = got == 0;
      at += got;
    }
    return at;
  }
  void write(std::span<const std::uint8_t> bytes) const {
    if (!bytes.empty() && turn.outside([&] { return sink(sink_user, bytes.data(), bytes.size()); }) != 0) stop();
  }
  [[noreturn]] static void stop() { throw Failure{DORMOUSE_STOPPED, "the callback asked to stop"}; }
};

// A compressor of the model for the length of a call. The turn of the call is taken around it.
class Borrowed {
 public:
  explicit Borrowed(Model& model) : model_(model) {
    if (model.idle.empty()) {
      own_.emplace_back(model.weights, model.crc);
    } else {
      own_.splice(own_.end(), model.idle, model.idle.begin());
    }
  }
  void give_back() { model_.idle.splice(model_.idle.end(), own_); }
  decode::Compressor& operator*() { return own_.front(); }

 private:
  Model& model_;
  std::list<decode::Compressor> own_;
};

dormouse_archived archived(const decode::CompressStats& stats) {
  return {.size = 0,
          .original_bytes = stats.original,
          .archive_bytes = stats.archive,
          .coded_bytes = stats.coded_bytes,
          .message_bytes = stats.coded_message,
          .blocks = stats.blocks,
          .raw_blocks = stats.raw_blocks};
}

using Work = std::function<decode::CompressStats(decode::Compressor&, const decode::ReadBytes&, const decode::WriteBytes&)>;

int run(dormouse_model* handle, dormouse_source source, void* source_user, dormouse_sink sink, void* sink_user, dormouse_archived* stats,
        const Work& work) {
  return call([&] {
    require(handle, "model is NULL");
    if (source == nullptr) throw Failure{DORMOUSE_USAGE, "source is NULL"};
    if (sink == nullptr) throw Failure{DORMOUSE_USAGE, "sink is NULL"};
    require_size(stats, kFirstArchived);
    const std::shared_ptr<Model> model = handle->held;
    Turn turn;
    Streams streams{turn, source, source_user, sink, sink_user};
    Borrowed compressor(*model);
    const auto done = work(
        *compressor, [&](std::span<std::uint8_t> out) { return streams.read(out); },
        [&](std::span<const std::uint8_t> bytes) { streams.write(bytes); });
    compressor.give_back();
    give(archived(done), stats);
  });
}

}  // namespace
}  // namespace dormouse::api

int dormouse_compress(dormouse_model* model, uint32_t block, dormouse_source source, void* source_user, dormouse_sink sink, void* sink_user,
                      dormouse_archived* stats) {
  namespace decode = dormouse::decode;
  return dormouse::api::run(model, source, source_user, sink, sink_user, stats,
                            [&](decode::Compressor& compressor, const decode::ReadBytes& read, const decode::WriteBytes& write) {
                              const decode::CompressOptions options{.block = block == 0 ? decode::kDefaultBlock : block};
                              return compressor.compress(read, write, options);
                            });
}

int dormouse_decompress(dormouse_model* model, dormouse_source source, void* source_user, dormouse_sink sink, void* sink_user,
                        dormouse_archived* stats) {
  namespace decode = dormouse::decode;
  return dormouse::api::run(model, source, source_user, sink, sink_user, stats,
                            [](decode::Compressor& compressor, const decode::ReadBytes& read, const decode::WriteBytes& write) {
                              decode::ArchiveReader archive(read, "the archive");
                              return compressor.decompress(archive, write);
                            });
}
