#include <memory>
#include <utility>

#include "api/handles.h"
#include "api/turn.h"
#include "base/version.h"
#include "network/dormouse/export.h"

using dormouse::api::call;
using dormouse::api::require;

namespace {

std::shared_ptr<dormouse::api::Model> load(const char* path) {
  namespace network = dormouse::network;
  const dormouse::api::Turn turn;
  const auto file = network::load_export(path);
  auto model = std::make_shared<dormouse::api::Model>();
  model->weights = network::read_weights(file);
  model->crc = network::weights_crc(file);
  model->dtype = file.header.dtype;
  model->parameters = static_cast<std::uint64_t>(file.header.num_params);
  model->bytes = file.header.payload_bytes;
  return model;
}

}  // namespace

const char* dormouse_version() { return dormouse::base::version().data(); }

const char* dormouse_last_error() { return dormouse::api::last_error(); }

int dormouse_set_threads(int threads) {
  return call([&] { dormouse::api::set_team(threads); });
}

int dormouse_open(const char* path, dormouse_model** model) {
  return call([&] {
    require(model, "dormouse_open: model is NULL");
    *model = nullptr;
    require(path, "dormouse_open: path is NULL");
    *model = new dormouse_model{load(path)};
  });
}

void dormouse_close(dormouse_model* model) { delete model; }

int64_t dormouse_depth(const dormouse_model* model) { return model == nullptr ? 0 : model->held->weights.config.max_iter; }

uint64_t dormouse_parameters(const dormouse_model* model) { return model == nullptr ? 0 : model->held->parameters; }

uint64_t dormouse_parameter_bytes(const dormouse_model* model) { return model == nullptr ? 0 : model->held->bytes; }

const char* dormouse_dtype(const dormouse_model* model) { return model == nullptr ? "" : model->held->dtype.c_str(); }
