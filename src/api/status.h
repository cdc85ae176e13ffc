// What every call of the C interface has around it: exceptions become a status and a sentence.
#pragma once

#include <cxxabi.h>

#include "dormouse.h"

namespace dormouse::api {

struct Failure {
  dormouse_status status;
  const char* text;
};

// The sentence of this thread; it is cut when it is very long.
const char* last_error();
void clear_error();
// Of the exception being handled: remembers its sentence.
int status_of_exception();

template <class Work>
int call(const Work& work) {
  clear_error();
  try {
    work();
    clear_error();  // of calls in callbacks
    return DORMOUSE_OK;
  } catch (const abi::__forced_unwind&) {  // pthread_cancel, pthread_exit in a callback: no error, and must pass
    throw;
  } catch (...) {
    return status_of_exception();
  }
}

template <class T>
void require(const T* argument, const char* text) {
  if (argument == nullptr) throw Failure{DORMOUSE_USAGE, text};
}

}  // namespace dormouse::api
