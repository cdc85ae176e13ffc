#include "network/dormouse/parameters.h"

#include <string>

#include "layer/init.h"

namespace dormouse::network {

using layer::declare;
using tensor::Kind;
using tensor::Role;

namespace {

layer::KdaShape kda_shape(const ModelConfig& c) { return {.d = c.d_model, .heads = c.n_heads, .head_dim = c.head_dim}; }

std::int64_t controller_width(const ModelConfig& c) { return (3 + c.n_experts + 3) / 4 * 4; }

}  // namespace

Parameters declare_shapes(const ModelConfig& c) {
  const std::int64_t d = c.d_model;
  Parameters p;
  p.embedding = declare("embedding.weight", Role::embedding, Kind::dense, {256, d});
  p.controller = declare("loop.controller.weight", Role::controller, Kind::dense, {2 * d, controller_width(c)});
  p.iteration_embedding = declare("loop.iteration_embedding", Role::iteration, Kind::bias, {c.max_iter, d});
  p.loop_norm = declare("loop.norm.weight", Role::norm, Kind::gain, {d});
  p.residual_scale = declare("loop.residual_scale", Role::iteration, Kind::gain, {1});
  p.memory_dense = declare("loop.memory_dense.weight", Role::memory_dense, Kind::dense, {d, d});
  if (c.use_kda) p.attention = layer::declare_kda("loop.attention", kda_shape(c));
  if (c.use_engram) p.engram = layer::declare_engram(c.engram_rows, c.engram_dim, d);
  for (std::int64_t e = 0; e < c.n_experts; ++e) {
    p.experts.push_back(layer::declare_expert("loop.experts." + std::to_string(e), d, c.d_ffn, c.rank));
  }
  p.readout = layer::declare_spectral("loop.readout", Role::readout, d, d, c.rank);
  p.final_norm = declare("norm.weight", Role::norm, Kind::gain, {d});
  p.head = layer::declare_spectral("head", Role::head, d, 256, c.rank);
  return p;
}

Parameters declare_parameters(const ModelConfig& c) {
  Parameters p = declare_shapes(c);
  for_each(p, c, [](Parameter& one) { one.value = tensor::Tensor::empty(one.value.shape(), one.value.dtype()); });
  return p;
}

void for_each(Parameters& p, const ModelConfig& c, const std::function<void(Parameter&)>& visit) {
  for (Parameter* one : {&p.embedding, &p.controller, &p.iteration_embedding, &p.loop_norm, &p.residual_scale, &p.memory_dense})
    visit(*one);
  if (c.use_kda) layer::for_each(p.attention, visit);
  for (auto& expert : p.experts) layer::for_each(expert, visit);
  if (c.use_engram) layer::for_each(p.engram, visit);
  layer::for_each(p.readout, visit);
  visit(p.final_norm);
  layer::for_each(p.head, visit);
}

std::vector<Parameter*> list(Parameters& p, const ModelConfig& c) {
  std::vector<Parameter*> all;
  for_each(p, c, [&](Parameter& one) { all.push_back(&one); });
  return all;
}

Parameters make_parameters(const ModelConfig& c, std::uint64_t seed) {
  Parameters p = declare_parameters(c);
  layer::draw_normal(p.embedding, seed, 1.0);
  layer::draw_fan_in(p.controller, seed);
  layer::draw_constant(p.iteration_embedding, 0.0F);
  layer::draw_constant(p.loop_norm, 1.0F);
  layer::draw_constant(p.residual_scale, 1.0F);
  layer::draw_fan_in(p.memory_dense, seed);
  if (c.use_kda) layer::draw_kda(p.attention, kda_shape(c), c.kda_decay_init, c.max_seq_len, seed);
  if (c.use_engram) layer::draw_engram(p.engram, seed);
  for (auto& expert : p.experts) layer::draw_expert(expert, c.expert_init, seed);
  layer::draw_spectral(p.readout, seed);
  layer::draw_constant(p.final_norm, 1.0F);
  layer::draw_spectral(p.head, seed);
  return p;
}

std::int64_t count(Parameters& p, const ModelConfig& c) {
  std::int64_t total = 0;
  for_each(p, c, [&](Parameter& one) { total += one.value.size(); });
  return total;
}

}  // namespace dormouse::network
