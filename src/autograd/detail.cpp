#include "autograd/detail.h"

#include <string>

namespace dormouse::autograd::detail {

void fail_shapes(const char* op, std::initializer_list<const Tensor*> given) {
  std::string message = op;
  message += ": the shapes do not fit:";
  for (const Tensor* t : given) {
    message += ' ';
    message += t->shape().text();
    message += t->defined() ? tensor::name_of(t->dtype()) : "(undefined)";
  }
  throw base::Error(message);
}

}  // namespace dormouse::autograd::detail
