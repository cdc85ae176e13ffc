#include "layer/init.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/random.h"

namespace dormouse::layer {

namespace {

base::SplitMix64 stream_of(const Parameter& parameter, std::uint64_t seed) { return base::SplitMix64(seed ^ base::fnv1a(parameter.name)); }

}  // namespace

Parameter declare(std::string name, Role role, Kind kind, const Shape& shape) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.role = role;
  parameter.kind = kind;
  parameter.value = tensor::Tensor::shaped(shape, tensor::Dtype::f32);
  return parameter;
}

void draw_constant(Parameter& parameter, float value) {
  float* w = parameter.value.data<float>();
  for (std::int64_t i = 0; i < parameter.value.size(); ++i) w[i] = value;
}

void draw_normal(Parameter& parameter, std::uint64_t seed, double deviation) {
  auto random = stream_of(parameter, seed);
  float* w = parameter.value.data<float>();
  for (std::int64_t i = 0; i < parameter.value.size(); ++i) w[i] = static_cast<float>(random.normal() * deviation);
}

void draw_fan_in(Parameter& parameter, std::uint64_t seed) {
  auto random = stream_of(parameter, seed);
  const double bound = 1.0 / std::sqrt(static_cast<double>(parameter.value.dim(0)));
  float* w = parameter.value.data<float>();
  for (std::int64_t i = 0; i < parameter.value.size(); ++i) w[i] = static_cast<float>((2.0 * random.uniform() - 1.0) * bound);
}

void draw_orthonormal(Parameter& parameter, std::uint64_t seed) {
  auto random = stream_of(parameter, seed);
  const auto n = static_cast<std::size_t>(parameter.value.dim(0));
  const auto k = static_cast<std::size_t>(parameter.value.dim(1));
  std::vector<double> a(n * k);  // column-major: column j at a[j*n]
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < k; ++j) a[j * n + i] = random.normal();
  }
  // Reflectors H_j = I - 2 w w^T overwrite the columns from the diagonal down; diag(R) is kept aside for the signs.
  std::vector<double> diagonal(k);
  for (std::size_t j = 0; j < k; ++j) {
    double* w = &a[j * n];
    double norm = 0;
    for (std::size_t i = j; i < n; ++i) norm += w[i] * w[i];
    norm = std::sqrt(norm);
    diagonal[j] = w[j] > 0 ? -norm : norm;
    w[j] -= diagonal[j];
    double length = 0;
    for (std::size_t i = j; i < n; ++i) length += w[i] * w[i];
    length = std::sqrt(length);
    if (length > 0) {
      for (std::size_t i = j; i < n; ++i) w[i] /= length;
    }
    for (std::size_t c = j + 1; c < k; ++c) {
      double dot = 0;
      for (std::size_t i = j; i < n; ++i) dot += w[i] * a[c * n + i];
      for (std::size_t i = j; i < n; ++i) a[c * n + i] -= 2 * dot * w[i];
    }
  }
  float* out = parameter.value.data<float>();
  std::vector<double> q(n);
  for (std::size_t c = 0; c < k; ++c) {
    for (std::size_t i = 0; i < n; ++i) q[i] = i == c ? 1 : 0;
    for (std::size_t j = k; j-- > 0;) {
      const double* w = &a[j * n];
      double dot = 0;
      for (std::size_t i = j; i < n; ++i) dot += w[i] * q[i];
      for (std::size_t i = j; i < n; ++i) q[i] -= 2 * dot * w[i];
    }
    const double sign = diagonal[c] < 0 ? -1 : 1;
    for (std::size_t i = 0; i < n; ++i) out[i * k + c] = static_cast<float>(sign * q[i]);
  }
}

}  // namespace dormouse::layer
