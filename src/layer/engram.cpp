#include "layer/engram.h"

#include <algorithm>

#include "table/keys.h"

namespace dormouse::layer {

using autograd::Tape;
using autograd::Var;

EngramParameters declare_engram(std::int64_t rows, std::int64_t width, std::int64_t d) {
  return {declare("loop.engram.table", Role::engram_table, Kind::table, {table::kOrders * rows, width}),
          declare("loop.engram.key.weight", Role::engram_key, Kind::dense, {table::kOrders * width, d}),
          declare("loop.engram.value.weight", Role::engram_value, Kind::dense, {table::kOrders * width, d})};
}

void draw_engram_table(EngramParameters& p, std::uint64_t seed) { draw_normal(p.table, seed, 0.02); }

void draw_engram(EngramParameters& p, std::uint64_t seed) {
  draw_engram_table(p, seed);
  draw_fan_in(p.key, seed);
  draw_fan_in(p.value, seed);
}

void for_each(EngramParameters& p, const std::function<void(Parameter&)>& visit) {
  visit(p.table);
  visit(p.key);
  visit(p.value);
}

tensor::Tensor engram_slots(std::span<const std::uint32_t> keys, std::int64_t rows) {
  const auto positions = static_cast<std::int64_t>(keys.size()) / table::kOrders;
  auto slots = tensor::Tensor::empty({positions, table::kOrders}, tensor::Dtype::u32);
  auto* out = slots.data<std::uint32_t>();
  const auto mask = static_cast<std::uint32_t>(rows - 1);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    out[i] = static_cast<std::uint32_t>(static_cast<std::int64_t>(i % table::kOrders) * rows) + (keys[i] & mask);
  }
  return slots;
}

std::vector<std::uint32_t> engram_touched(std::span<const std::uint32_t> keys, std::int64_t rows) {
  const auto slots = engram_slots(keys, rows);
  const auto* begin = slots.data<std::uint32_t>();
  std::vector<std::uint32_t> touched(begin, begin + slots.size());
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  return touched;
}

EngramRows engram_rows(Tape& tape, EngramParameters& p, const tensor::Tensor& slots) {
  const autograd::Stage stage(tape, "memory");
  const Var e = gather(tape, slots, tape.parameter(p.table));
  return {matmul(tape, e, tape.parameter(p.key)), matmul(tape, e, tape.parameter(p.value))};
}

Var engram(Tape& tape, const EngramRows& rows, const Var& u) {
  const autograd::Stage stage(tape, "memory");
  return engram_read(tape, rows.key, rows.value, u, kEngramNormEps);
}

EngramWeights read_engram(const WeightSource& source, const std::string& name) {
  return {LookupTable(source, name + ".table"), matrix(source, name + ".key.weight"), matrix(source, name + ".value.weight")};
}

void engram_rows_step(const ops::OpTable<float>& table, const EngramWeights& w, const tensor::Tensor& slots, Scratch& scratch, float* key,
                      float* value) {
  const std::int64_t rows = slots.dim(0);
  float* e = scratch.take(slots.size() * w.table.width());
  w.table.gather({slots.data<std::uint32_t>(), static_cast<std::size_t>(slots.size())}, e);
  table.products(rows, {{{&w.key, e, key}, {&w.value, e, value}}}, ops::Sweep::forward);
}

void engram_step(const ops::OpTable<float>& table, std::int64_t rows, std::int64_t d, const float* key, const float* value, const float* u,
                 float* read, float* saved) {
  table.engram_read({.rows = rows, .d = d, .eps = kEngramNormEps}, key, value, u, read, saved);
}

}  // namespace dormouse::layer
