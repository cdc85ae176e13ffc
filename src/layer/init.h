// Declaring a parameter and drawing its first value. Each tensor draws from its own stream, keyed seed xor fnv1a(name), so adding
// a tensor changes no other.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/parameter.h"

namespace dormouse::layer {

using tensor::Kind;
using tensor::Parameter;
using tensor::Role;
using tensor::Shape;

// A parameter with its shape (f32), without storage.
Parameter declare(std::string name, Role role, Kind kind, const Shape& shape);

void draw_constant(Parameter& parameter, float value);
void draw_normal(Parameter& parameter, std::uint64_t seed, double deviation);  // N(0, deviation^2)
void draw_fan_in(Parameter& parameter, std::uint64_t seed);                    // U(-1/sqrt(in), 1/sqrt(in)), weight [in,out]
// Orthonormal columns: Q of the Householder QR of a Gaussian, columns times sign(diag R). weight [n,k], n >= k.
void draw_orthonormal(Parameter& parameter, std::uint64_t seed);

}  // namespace dormouse::layer
