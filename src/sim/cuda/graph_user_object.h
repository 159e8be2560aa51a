// User objects: the program's resources that live as long as graphs that use them.
#pragma once

#include <atomic>

#include "sim/cuda/cuda_abi.h"
#include "sim/cuda/handles.h"

namespace tessera::sim {

struct UserObject {
  static constexpr HandleKind kKind = HandleKind::kUserObject;
  using Handle = CUuserObject;
  CUuserObject handle{};
  void* pointer = nullptr;
  CUhostFn destroy = nullptr;
  std::atomic<std::uint64_t> references{0};
};

void RetainUserObject(UserObject& object, unsigned count);
// The last release calls the program's destructor.
void ReleaseUserObject(UserObject& object, unsigned count);

}  // namespace tessera::sim
