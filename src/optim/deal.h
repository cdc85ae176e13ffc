// How the matrices of one update are shared among threads.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "ops/ops.h"
#include "tensor/tensor.h"

namespace dormouse::optim {

// visit(i) once for every matrix of the list, from several threads; visits must not meet. Matrices of equal shape are dealt out, each to
// one thread, on which all ops of its visit stay: small products gain nothing from a second thread, large ones less than by this. Only
// large matrices that would leave threads idle are visited one by one, and every thread takes part in each. What a visit throws is thrown.
void deal(const ops::OpTable<float>& table, const std::vector<tensor::Tensor>& matrices, const std::function<void(std::size_t i)>& visit);

}  // namespace dormouse::optim
