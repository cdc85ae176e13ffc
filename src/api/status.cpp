#include "api/status.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "base/error.h"

namespace dormouse::api {
namespace {

// No allocation: it also holds what is said when there is no memory. Two escaped paths fit.
thread_local std::array<char, 4096> text;

int remember(dormouse_status status, std::string_view what) {
  const std::size_t size = std::min(what.size(), text.size() - 1);
  std::memcpy(text.data(), what.data(), size);
  text[size] = '\0';
  return status;
}

}  // namespace

const char* last_error() { return text.data(); }

void clear_error() { text[0] = '\0'; }

int status_of_exception() {
  try {
    throw;
  } catch (const Failure& failure) {
    return remember(failure.status, failure.text);
  } catch (const base::UsageError& error) {
    return remember(DORMOUSE_USAGE, error.what());
  } catch (const base::Damaged& error) {
    return remember(DORMOUSE_DAMAGED, error.what());
  } catch (const base::OutOfMemory& error) {
    return remember(DORMOUSE_MEMORY, error.what());
  } catch (const base::Error& error) {
    return remember(DORMOUSE_REFUSED, error.what());
  } catch (const std::bad_alloc&) {
    return remember(DORMOUSE_MEMORY, "out of memory; free other sessions and models, or take a smaller model");
  } catch (const std::exception& error) {
    return remember(DORMOUSE_REFUSED, error.what());
  } catch (...) {
    return remember(DORMOUSE_REFUSED, "a callback threw an exception; let it return a number instead");
  }
}

}  // namespace dormouse::api
