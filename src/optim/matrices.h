// The matrices of one update, shared among threads.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "ops/ops.h"
#include "tensor/tensor.h"

namespace dormouse::optim {

// visit(i) runs once for every matrix i, on several threads at once, so visits must not write the same memory. Matrices of equal shape are
// handed out, each to one thread, and the ops of a visit stay on that thread: small products gain nothing from a second one, large ones
// less than this does. Large matrices fewer than the threads, and one whose shape no other has, are visited one at a time, with ops that
// use every thread. What a visit throws is thrown here.
void for_each_matrix(const ops::OpTable<float>& table, const std::vector<tensor::Tensor>& matrices,
                     const std::function<void(std::size_t i)>& visit);

}  // namespace dormouse::optim
