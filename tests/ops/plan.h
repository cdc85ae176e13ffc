// One op call as data: what it reads and writes, so that one test can run any column against the reference.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "ops/ops.h"

namespace dormouse::ops::cases {

inline double as_f32(double x) { return static_cast<double>(static_cast<float>(x)); }

enum class Kind : std::uint8_t { normal, huge, constant, zero, denormal };

// Input values of one kind, each exactly representable in f32 so that every column reads the same numbers.
class Draw {
 public:
  Draw(Kind kind, std::uint64_t seed) : kind_(kind), random_(seed) {}
  std::vector<double> values(std::int64_t n);                            // of the kind
  std::vector<double> normal(std::int64_t n);                            // ordinary whatever the kind: weights, initial gradients
  std::vector<double> uniform(std::int64_t n, double low, double high);  // for inputs with a domain
  std::vector<double> unit_rows(std::int64_t rows, std::int64_t d);      // rows of length 1
  std::vector<std::uint32_t> indices(std::int64_t n, std::int64_t below);
  double magnitude() const;  // of values()
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
  base::SplitMix64 random_;
};

// One call of one op (with its backward) on concrete buffers.
class Plan {
 public:
  struct Buffer {
    std::vector<double> initial;
    std::int64_t row = 1;   // elements that share one error scale
    bool checked = false;   // written by the op
    bool gradient = false;  // may be null, accumulates
    double scale = 0;       // magnitude of the terms summed into an element, where it can exceed the row's values
    std::string name;
  };

  Plan& in(std::string name, std::vector<double> values);
  // Filled with NaN before the call: an element left unwritten is seen.
  Plan& out(std::string name, std::int64_t n, std::int64_t row, double scale = 0);
  Plan& inout(std::string name, std::vector<double> values, std::int64_t row, double scale = 0);
  Plan& gradient(std::string name, std::vector<double> initial, std::int64_t row, double scale = 0);

  // body(table, buffers): buffers[i] is the i-th declared one.
  template <class Body>
  Plan& run(Body body) {
    run_f32 = [body](const OpTable<float>& table, const std::vector<float*>& b) { body(table, b); };
    run_f64 = [body](const OpTable<double>& table, const std::vector<double*>& b) { body(table, b); };
    return *this;
  }

  std::vector<Buffer> buffers;
  std::function<void(const OpTable<float>&, const std::vector<float*>&)> run_f32;
  std::function<void(const OpTable<double>&, const std::vector<double*>&)> run_f64;
};

struct Case {
  std::string name;      // identifier
  double tolerance = 0;  // |column - f64 reference| <= tolerance * (|element| + largest of its row + scale)
  std::function<Plan(Draw&, std::int64_t rows, std::int64_t cols)> plan;
  double denormal_floor = 1e-35;   // absolute error allowed on denormal inputs: columns may flush them to zero
  Compute compute = Compute::f32;  // of its products
};
inline void PrintTo(const Case& op, std::ostream* out) { *out << op.name; }

inline double Draw::magnitude() const {
  switch (kind_) {
    case Kind::normal:
    case Kind::constant:
      return 1.0;
    case Kind::huge:
      return 1e7;
    case Kind::zero:
    case Kind::denormal:
      return 0.0;
  }
  return 0.0;
}

inline std::vector<double> Draw::values(std::int64_t n) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) {
    const double z = random_.normal();
    switch (kind_) {
      case Kind::normal:
        out.push_back(as_f32(z));
        break;
      case Kind::huge:
        out.push_back(as_f32(1e7 * z));
        break;
      case Kind::constant:
        out.push_back(0.75);
        break;
      case Kind::zero:
        out.push_back(0.0);
        break;
      case Kind::denormal:
        out.push_back(as_f32(3e-39 * z));
        break;
    }
  }
  return out;
}

inline std::vector<double> Draw::normal(std::int64_t n) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(as_f32(random_.normal()));
  return out;
}

inline std::vector<double> Draw::uniform(std::int64_t n, double low, double high) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(as_f32(low + (high - low) * random_.uniform()));
  return out;
}

inline std::vector<double> Draw::unit_rows(std::int64_t rows, std::int64_t d) {
  std::vector<double> out = normal(rows * d);
  for (std::int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::int64_t i = r * d; i < (r + 1) * d; ++i) squares += out[static_cast<std::size_t>(i)] * out[static_cast<std::size_t>(i)];
    for (std::int64_t i = r * d; i < (r + 1) * d; ++i) {
      out[static_cast<std::size_t>(i)] = as_f32(out[static_cast<std::size_t>(i)] / std::sqrt(squares));
    }
  }
  return out;
}

inline std::vector<std::uint32_t> Draw::indices(std::int64_t n, std::int64_t below) {
  std::vector<std::uint32_t> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(static_cast<std::uint32_t>(random_.below(static_cast<std::uint64_t>(below))));
  return out;
}

inline Plan& Plan::in(std::string name, std::vector<double> values) {
  buffers.push_back({.initial = std::move(values), .name = std::move(name)});
  return *this;
}

inline Plan& Plan::out(std::string name, std::int64_t n, std::int64_t row, double scale) {
  return inout(std::move(name), std::vector<double>(static_cast<std::size_t>(n), std::numeric_limits<double>::quiet_NaN()), row, scale);
}

inline Plan& Plan::inout(std::string name, std::vector<double> values, std::int64_t row, double scale) {
  buffers.push_back({.initial = std::move(values), .row = row, .checked = true, .scale = scale, .name = std::move(name)});
  return *this;
}

inline Plan& Plan::gradient(std::string name, std::vector<double> initial, std::int64_t row, double scale) {
  inout(std::move(name), std::move(initial), row, scale);
  buffers.back().gradient = true;
  return *this;
}

}  // namespace dormouse::ops::cases
