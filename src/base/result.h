// Result<T>: a value or an Error with a code of gRPC's set and one line of text.
//
//   Result<Slice> slice = store.Find(name);
//   if (!slice) return Fail(slice.error().code, "limit: " + slice.error().message);
//
// Messages are one line, start in lower case and name field, value and what is legal. No exception
// crosses an API of this project.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace tessera {

enum class Code {
  kInvalidArgument,  // the caller's value is wrong whatever the state of the machine
  kNotFound,         // no such card, slice, file
  kAlreadyExists,
  kPermissionDenied,
  kResourceExhausted,   // no room on a card, on a disk, in a table
  kFailedPrecondition,  // right value, wrong state (inside a slice already, dead slice)
  kUnavailable,         // no driver, state directory cannot be used
  kDeadlineExceeded,
  kUnimplemented,    // a newer layout, an older kernel
  kDataLoss,         // a file that is not what it should be
  kAborted,          // somebody else changed it first: read again
  kOutOfRange,       // the version that was asked for is no longer kept
  kUnauthenticated,  // who we are was not accepted
  kCancelled,        // the caller gave it up
  kInternal,
};

struct Error {
  Code code = Code::kInternal;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> Fail(Code code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

inline tl::unexpected<Error> Fail(const Error& error) { return tl::unexpected<Error>(error); }

// The same error with what was being done in front of it.
inline tl::unexpected<Error> FailIn(const std::string& what, const Error& error) {
  return Fail(error.code, what + ": " + error.message);
}

// The code that fits an errno, and "what: strerror" as the message.
tl::unexpected<Error> FailErrno(const std::string& what, int error_number);

}  // namespace tessera
