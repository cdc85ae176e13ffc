#include "format/header.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"

namespace dormouse::format {

namespace {

constexpr std::size_t kMaxRank = 4;
constexpr std::string_view kMetadata = "__metadata__";

// The events of nlohmann's SAX reader against the one grammar of the header. Every false stops the reader, so depth and array
// lengths are bounded by what the grammar allows.
class HeaderReader {
 public:
  explicit HeaderReader(Header& header) : header_(header) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(std::int64_t) { return unexpected("a negative number"); }
  bool number_float(double, const std::string&) { return unexpected("a fraction or a number beyond 64 bits"); }
  bool binary(const nlohmann::json::binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if (at_ == At::shape_items) {
      auto& dims = header_.entries.back().dims;
      if (dims.size() == kMaxRank) return fail(fmt::format("gives {} more than {} dimensions", subject(), kMaxRank));
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return fail(fmt::format("gives {} a dimension of {}", subject(), value));
      dims.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (at_ == At::offset_items) {
      if (offsets_ == 2) return fail(fmt::format("gives {} more than two data_offsets", subject()));
      (offsets_ == 0 ? header_.entries.back().begin : header_.entries.back().end) = value;
      ++offsets_;
      return true;
    }
    return unexpected("a number");
  }

  bool string(const std::string& value) {
    if (at_ == At::dtype) {
      header_.entries.back().dtype = value;
      at_ = At::entry;
      return true;
    }
    if (at_ == At::metadata_value) {
      header_.metadata[key_] = value;
      at_ = At::metadata;
      return true;
    }
    return unexpected("a string");
  }

  bool start_object(std::size_t) {
    switch (at_) {
      case At::start:
        at_ = At::top;
        return true;
      case At::tensor:
        at_ = At::entry;
        return true;
      case At::metadata_object:
        at_ = At::metadata;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool end_object() {
    if (at_ == At::entry) {
      if (seen_ != (kDtype | kShape | kOffsets)) return fail(fmt::format("lacks dtype, shape or data_offsets of {}", subject()));
      at_ = At::top;
    } else if (at_ == At::metadata) {
      at_ = At::top;
    } else {
      at_ = At::done;
    }
    return true;
  }

  bool start_array(std::size_t) {
    switch (at_) {
      case At::shape:
        at_ = At::shape_items;
        return true;
      case At::offsets:
        at_ = At::offset_items;
        return true;
      default:
        return unexpected("an array");
    }
  }

  bool end_array() {
    if (at_ == At::offset_items && offsets_ != 2) return fail(fmt::format("gives {} fewer than two data_offsets", subject()));
    at_ = At::entry;
    return true;
  }

  bool key(const std::string& name) {
    key_ = name;
    if (at_ == At::metadata) {
      if (header_.metadata.count(name) != 0) return fail(fmt::format("holds the metadata key \"{}\" twice", base::escape(name)));
      at_ = At::metadata_value;
      return true;
    }
    if (at_ == At::top) {
      if (!names_.insert(name).second) return fail(fmt::format("holds \"{}\" twice", base::escape(name)));
      if (name == kMetadata) {
        at_ = At::metadata_object;
        return true;
      }
      header_.entries.push_back({.name = name, .dtype = {}, .dims = {}});
      seen_ = 0;
      offsets_ = 0;
      at_ = At::tensor;
      return true;
    }
    if (name == "dtype") return field(kDtype, At::dtype);
    if (name == "shape") return field(kShape, At::shape);
    if (name == "data_offsets") return field(kOffsets, At::offsets);
    return fail(fmt::format("holds the unknown key \"{}\" in {}", base::escape(name), subject()));
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return fail(fmt::format("is not JSON (at its byte {})", position));
  }

 private:
  enum class At : std::uint8_t {
    start,
    top,
    tensor,  // the value of a tensor name
    entry,
    dtype,
    shape,
    shape_items,
    offsets,
    offset_items,
    metadata_object,  // the value of __metadata__
    metadata,
    metadata_value,
    done,
  };
  enum : unsigned { kDtype = 1, kShape = 2, kOffsets = 4 };

  bool field(unsigned bit, At next) {
    if ((seen_ & bit) != 0) return fail(fmt::format("holds \"{}\" twice in {}", key_, subject()));
    seen_ |= bit;
    at_ = next;
    return true;
  }

  std::string subject() const { return fmt::format("tensor \"{}\"", base::escape(header_.entries.back().name)); }

  bool unexpected(std::string_view what) {
    if (at_ == At::start) return fail(fmt::format("is {}, not a JSON object", what));
    return fail(fmt::format("has {} in the place of another kind of value, at key \"{}\"", what, base::escape(key_)));
  }

  bool fail(std::string problem) {
    header_.problem = std::move(problem);
    return false;
  }

  Header& header_;
  At at_ = At::start;
  std::string key_;
  unsigned seen_ = 0;
  int offsets_ = 0;
  std::unordered_set<std::string> names_;
};

}  // namespace

Header parse_header(std::string_view text) {
  Header header;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  // nlohmann's reader takes a NUL for the end of the text and skips a byte order mark.
  if (first == std::string_view::npos || text[first] != '{') {
    header.problem = "does not begin with '{'";
  } else if (text.find('\0') != std::string_view::npos) {
    header.problem = "holds a zero byte";
  } else {
    HeaderReader reader(header);
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader) && header.problem.empty()) header.problem = "is not JSON";
  }
  return header;
}

}  // namespace dormouse::format
