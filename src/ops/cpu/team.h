// A team kept awake. Decoding a byte is a hundred small pieces of work: OpenMP's fork and join cost as much as some of them. Inside awake()
// the threads of one OpenMP region wait for the next piece in a spin, and every kernel that splits its work (ops/cpu/parallel.h) uses them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace dormouse::ops::cpu {

class Team {
 public:
  // The team of the calling thread, while no piece of work is under way; null elsewhere, and inside alone().
  static Team* current();
  // Calls body on this thread; what it throws passes through. Inside a parallel region or alone(), or with one thread: just the call.
  // Returns the seconds this thread slept because others were late.
  static double awake(const std::function<void()>& body);
  // Calls body with every kernel in it on this thread alone.
  static void alone(const std::function<void()>& body);
  // Awake, or alone where body's multiplications are too few to share, or where sharing lost more than it won the last times: on a machine
  // that has other work. No bit of a result depends on it.
  static void fit(std::int64_t products, const std::function<void()>& body);
  static bool is_alone();

  int size() const { return size_; }
  // job(data, id, size) once on every thread; returns when all have. As in an OpenMP region an exception must not leave it: it would end
  // the program.
  using Job = void (*)(const void* data, int id, int size) noexcept;
  void run(Job job, const void* data);

 private:
  explicit Team(int size);
  void serve(int id);
  int size_;
  double asleep_ = 0;  // seconds
  int spins_;          // while waiting: a tenth of a millisecond, none when there are more threads than processors
  Job job_ = nullptr;  // null: the end
  const void* data_ = nullptr;
  alignas(64) std::atomic<int> turn_ = 0;  // counts the pieces handed out
  alignas(64) std::atomic<int> busy_ = 0;  // threads that have not finished it
};

}  // namespace dormouse::ops::cpu
