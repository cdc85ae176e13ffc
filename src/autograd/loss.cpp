// cross_entropy and the means that join losses and readouts.
#include <vector>

#include "autograd/detail.h"

namespace dormouse::autograd {

using detail::grad_ptr;
using detail::ptr;
using detail::require;
using detail::result;
using detail::with_table;

Var cross_entropy(Tape& tape, const Var& x, const Var& v, const Tensor& target) {
  require(x.defined() && v.defined() && v.value().rank() == 2 && v.shape()[1] == x.value().cols() && v.dtype() == x.dtype() &&
              target.dtype() == Dtype::u8 && target.size() == x.value().rows(),
          "cross_entropy", {&x.value(), &v.value(), &target});
  const ops::CrossEntropy shape{.rows = x.value().rows(), .k = x.value().cols(), .classes = v.shape()[0]};
  const std::uint8_t* targets = ptr<std::uint8_t>(target);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    if (targets[r] >= shape.classes) {
      throw base::Error("cross_entropy: target " + std::to_string(targets[r]) + " of " + std::to_string(shape.classes) + " classes");
    }
  }
  Tensor nats = Tensor::empty({shape.rows}, x.dtype());
  Tensor lse = Tensor::empty({shape.rows}, x.dtype());
  with_table(tape, nats.dtype(),
             [&]<class T>(const ops::OpTable<T>& t) { t.cross_entropy(shape, ptr<T>(x), ptr<T>(v), targets, ptr<T>(nats), ptr<T>(lse)); });
  return result(tape, std::move(nats), detail::any_wants_grad({&x, &v}), [&tape, x, v, target, lse, shape](const Tensor& dnats) {
    with_table(tape, dnats.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      t.cross_entropy_backward(shape, ptr<T>(x), ptr<T>(v), ptr<std::uint8_t>(target), ptr<T>(lse), ptr<T>(dnats),
                               grad_ptr<T>(x.gradient()), grad_ptr<T>(v.gradient()));
    });
  });
}

Var mean_of(Tape& tape, std::span<const Var> xs) {
  if (xs.empty()) throw base::Error("mean_of: no values");
  Tensor y = Tensor::zeros(xs[0].shape(), xs[0].dtype());
  std::vector<Gradient> gradients;
  bool wants_grad = false;
  for (const Var& x : xs) {
    require(x.shape() == y.shape() && x.dtype() == y.dtype(), "mean_of", {&x.value(), &y});
    gradients.push_back(x.gradient());
    wants_grad = wants_grad || x.wants_grad();
  }
  const double share = 1.0 / static_cast<double>(xs.size());
  with_table(tape, y.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
    for (const Var& x : xs) t.axpy(y.size(), static_cast<T>(share), ptr<T>(x), ptr<T>(y));
  });
  return result(tape, std::move(y), wants_grad, [&tape, gradients = std::move(gradients), share](const Tensor& dy) {
    with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>& t) {
      for (const Gradient& dx : gradients) {
        if (dx.wanted()) t.axpy(dy.size(), static_cast<T>(share), ptr<T>(dy), grad_ptr<T>(dx));
      }
    });
  });
}

namespace {

template <class T>
double mean(const Tensor& x) {
  const T* values = ptr<T>(x);
  double sum = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) sum += static_cast<double>(values[i]);
  return x.size() == 0 ? 0.0 : sum / static_cast<double>(x.size());
}

}  // namespace

Var weighted_mean(Tape& tape, std::span<const Var> xs, std::span<const double> weights) {
  if (xs.empty() || xs.size() != weights.size()) {
    throw base::Error("weighted_mean: " + std::to_string(xs.size()) + " values and " + std::to_string(weights.size()) + " weights");
  }
  Tensor y = Tensor::empty({1}, xs[0].dtype());
  std::vector<std::pair<Gradient, double>> parts;  // gradient, weight of each of its elements
  bool wants_grad = false;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    require(xs[i].defined() && xs[i].dtype() == y.dtype(), "weighted_mean", {&xs[i].value(), &y});
    const std::int64_t size = xs[i].value().size();
    if (size > 0) parts.emplace_back(xs[i].gradient(), weights[i] / static_cast<double>(size));
    wants_grad = wants_grad || xs[i].wants_grad();
  }
  with_table(tape, y.dtype(), [&]<class T>(const ops::OpTable<T>&) {
    double sum = 0;
    for (std::size_t i = 0; i < xs.size(); ++i) sum += weights[i] * mean<T>(xs[i].value());
    *ptr<T>(y) = static_cast<T>(sum);
  });
  return result(tape, std::move(y), wants_grad, [&tape, parts = std::move(parts)](const Tensor& dy) {
    with_table(tape, dy.dtype(), [&]<class T>(const ops::OpTable<T>&) {
      for (const auto& [gradient, weight] : parts) {
        if (!gradient.wanted()) continue;
        const T step = static_cast<T>(static_cast<double>(*ptr<T>(dy)) * weight);
        const Tensor& dx = gradient.tensor();
        T* values = ptr<T>(dx);
        for (std::int64_t j = 0; j < dx.size(); ++j) values[j] += step;
      }
    });
  });
}

}  // namespace dormouse::autograd
