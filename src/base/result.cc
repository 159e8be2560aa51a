#include "base/result.h"

#include <cerrno>
#include <cstring>

namespace tessera {
namespace {

Code CodeOfErrno(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ESRCH:
    case ENODEV:
      return Code::kNotFound;
    case EEXIST:
      return Code::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return Code::kResourceExhausted;
    case EINVAL:
      return Code::kInvalidArgument;
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::kUnimplemented;
    default:
      return Code::kInternal;
  }
}

}  // namespace

tl::unexpected<Error> FailErrno(const std::string& what, int error_number) {
  return Fail(CodeOfErrno(error_number), what + ": " + std::strerror(error_number));
}

}  // namespace tessera
