// cuGetProcAddress: which entry point a caller compiled against some version gets.
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/proc_table.h"
#include "sim/state/node_state.h"

namespace tessera::sim {
namespace {

const ProcName* FindName(const char* name) {
  std::uint32_t hash = 0x811C9DC5;
  for (const char* c = name; *c; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 0x01000193;
  for (std::uint32_t slot = hash % kProcSlotCount; kProcSlots[slot] >= 0;
       slot = (slot + 1) % kProcSlotCount) {
    const ProcName& found = kProcNames[kProcSlots[slot]];
    if (std::strcmp(found.name, name) == 0) return &found;
  }
  return nullptr;
}

struct Found {
  void* entry;
  CUdriverProcAddressQueryResult status;
};

// The highest ABI that is not newer than the caller and the driver; per-thread form if wanted and
// there.
Found Look(const char* symbol, int version, int driver, bool per_thread) {
  const ProcName* name = FindName(symbol);
  if (!name) return {nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
  void* plain = nullptr;
  void* threaded = nullptr;
  bool newer = false;
  for (int i = name->first; i < name->first + name->count; ++i) {
    const ProcVersion& entry = kProcVersions[i];
    if (entry.version > driver) continue;
    if (entry.version > version)
      newer = true;
    else
      (entry.per_thread ? threaded : plain) = entry.entry;
  }
  void* entry = per_thread && threaded ? threaded : plain;
  if (entry) return {entry, CU_GET_PROC_ADDRESS_SUCCESS};
  return {nullptr, newer ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                         : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
}

// Answers the look-up as cuda.h documents it: a missing function is CUDA_SUCCESS with a null
// pointer in v2, whose status tells why; v1 has no status and answers NOT_FOUND.
CUresult Answer(const char* symbol, void** function, int version, cuuint64_t flags,
                CUdriverProcAddressQueryResult* status, CUresult missing) {
  constexpr cuuint64_t kForms =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const NodeState* node = AttachNode();
  const int driver = node ? static_cast<int>(node->driver_version_cuda) : CUDA_VERSION;
  if (!symbol || !function || (flags & ~kForms) || (flags & kForms) == kForms || version > driver)
    return CUDA_ERROR_INVALID_VALUE;
  const Found found =
      Look(symbol, version, driver, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  *function = found.entry;
  if (status) *status = found.status;
  return found.entry ? CUDA_SUCCESS : missing;
}

}  // namespace
}  // namespace tessera::sim

SIM_API(cuGetProcAddress)(const char* symbol, void** function, int version, cuuint64_t flags) {
  return tessera::sim::Answer(symbol, function, version, flags, nullptr, CUDA_ERROR_NOT_FOUND);
}

SIM_API(cuGetProcAddress_v2)(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return tessera::sim::Answer(symbol, function, version, flags, status, CUDA_SUCCESS);
}
