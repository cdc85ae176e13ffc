#include <algorithm>
#include <cstring>
#include <utility>

#include "api/handles.h"
#include "api/turn.h"
#include "decode/sampler.h"

namespace dormouse::api {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

}  // namespace

void Session::restart() {
  lanes.restart(0);
  recent.clear();
  whole = true;
}

void Session::read(std::span<const std::uint8_t> bytes) {
  if (bytes.size() > kMostBytes) throw Failure{DORMOUSE_USAGE, "more than 2^30 bytes in one call; read them in pieces"};
  if (!whole) throw Failure{DORMOUSE_REFUSED, "the last call of this session failed while it was reading; restart it"};
  if (bytes.empty()) return;
  whole = false;
  lanes.read(0, bytes);
  const auto last = bytes.last(std::min(bytes.size(), decode::kPenaltyWindow));
  recent.insert(recent.end(), last.begin(), last.end());
  if (recent.size() > decode::kPenaltyWindow)
    recent.erase(recent.begin(), recent.end() - static_cast<std::ptrdiff_t>(decode::kPenaltyWindow));
  whole = true;
}

std::span<const float> Session::logits() const {
  if (!whole) throw Failure{DORMOUSE_REFUSED, "the last call of this session failed while it was reading; restart it"};
  if (lanes.position(0) == 0) throw Failure{DORMOUSE_USAGE, "the session has read nothing; nothing can be said of the next byte"};
  return lanes.logits(0);
}

Use::Use(const dormouse_session* handle) {
  require(handle, "session is NULL");
  session_ = handle->held;
  if (session_->used.exchange(true)) throw Failure{DORMOUSE_BUSY, "the session is in another call; give every thread its own session"};
}

}  // namespace dormouse::api

using dormouse::api::call;
using dormouse::api::require;
using dormouse::api::Turn;
using dormouse::api::Use;

int dormouse_session_new(const dormouse_model* model, int64_t depth, dormouse_session** session) {
  return call([&] {
    require(session, "dormouse_session_new: session is NULL");
    *session = nullptr;
    require(model, "dormouse_session_new: model is NULL");
    const Turn turn;
    *session = new dormouse_session{std::make_shared<dormouse::api::Session>(model->held, depth)};
  });
}

void dormouse_session_free(dormouse_session* session) { delete session; }

int dormouse_session_restart(dormouse_session* session) {
  return call([&] { Use(session)->restart(); });
}

int dormouse_read(dormouse_session* session, const unsigned char* bytes, size_t count) {
  return call([&] {
    const Use use(session);
    if (count > 0) require(bytes, "dormouse_read: bytes is NULL");
    const Turn turn;
    use->read({bytes, count});
  });
}

int dormouse_logits(dormouse_session* session, float logits[256]) {
  return call([&] {
    const Use use(session);
    require(logits, "dormouse_logits: logits is NULL");
    const auto from = use->logits();
    std::copy(from.begin(), from.end(), logits);
  });
}
