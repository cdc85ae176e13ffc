// What the handles of include/dormouse.h hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/status.h"
#include "decode/compress.h"
#include "decode/lanes.h"
#include "network/dormouse/weights.h"

namespace dormouse::api {

struct Model {
  network::Weights weights;
  std::uint32_t crc = 0;  // network::weights_crc
  std::string dtype;
  std::uint64_t parameters = 0, bytes = 0;
  // Compressors that no call uses just now: to make one costs 256 bytes of reading.
  std::list<decode::Compressor> idle = {};
};

// One text. Its calls are those of one thread at a time (Use).
struct Session {
  Session(std::shared_ptr<const Model> of, std::int64_t depth) : model(std::move(of)), lanes(model->weights, 1, depth) {}
  std::shared_ptr<const Model> model;
  decode::Lanes lanes;
  std::vector<std::uint8_t> recent;  // the last bytes read, as many as the repeat penalty looks at
  bool whole = true;                 // false: a call failed while it was reading
  std::atomic<bool> used = false;

  void restart();
  void read(std::span<const std::uint8_t> bytes);
  // [256]; Failure when nothing was read.
  std::span<const float> logits() const;
};

}  // namespace dormouse::api

struct dormouse_model {
  std::shared_ptr<dormouse::api::Model> held;
};

struct dormouse_session {
  std::shared_ptr<dormouse::api::Session> held;
};

namespace dormouse::api {

// The session of a handle for the length of a call: a second call of it is refused, and it outlives its handle.
class Use {
 public:
  explicit Use(const dormouse_session* handle);
  ~Use() { session_->used = false; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Session& operator*() const { return *session_; }
  Session* operator->() const { return session_.get(); }

 private:
  std::shared_ptr<Session> session_;
};

}  // namespace dormouse::api
