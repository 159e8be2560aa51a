#include "sim/cuda/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "sim/cuda/api.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {
namespace {

struct HostRange {
  std::uint64_t base, size;
  bool allocated;  // by us, else registered
  unsigned flags;
  Context* context;
  std::uint64_t id;
};

// Guarded by MemoryLock; never destroyed.
using HostMap = std::map<std::uint64_t, HostRange>;
HostMap& Ranges() {
  static auto* ranges = new HostMap;
  return *ranges;
}

std::uint64_t PageSize() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

HostMap::iterator Holder(std::uint64_t address) {
  auto it = Ranges().upper_bound(address);
  if (it == Ranges().begin()) return Ranges().end();
  --it;
  return address - it->first < it->second.size ? it : Ranges().end();
}

CUresult Allocate(void** pointer, std::size_t bytes, unsigned flags) {
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (!pointer || (flags & ~kKnown)) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(ForbiddenInCapture());
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* at = mmap(nullptr, RoundUp(bytes, PageSize()), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto base = reinterpret_cast<std::uint64_t>(at);
  MemoryLock lock;
  Ranges()[base] = {base, bytes, true, flags, context, NextBufferId()};
  *pointer = at;
  return CUDA_SUCCESS;
}

CUresult Register(void* pointer, std::size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if (!pointer || bytes == 0 || (flags & ~kKnown)) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  const auto base = reinterpret_cast<std::uint64_t>(pointer);
  const std::uint64_t first = base / PageSize() * PageSize();
  // Only memory that is mapped can be pinned; msync tells without touching it.
  if (base + bytes < base ||
      msync(reinterpret_cast<void*>(first), base + bytes - first, MS_ASYNC) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  if (OverlapsHostMemory(base, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  Ranges()[base] = {base, bytes, false, flags, context, NextBufferId()};
  return CUDA_SUCCESS;
}

void Unmap(const HostRange& range) {
  munmap(reinterpret_cast<void*>(range.base), RoundUp(range.size, PageSize()));
}

}  // namespace

bool FindHostPointer(std::uint64_t address, PointerInfo* info) {
  const auto it = Holder(address);
  if (it == Ranges().end()) return false;
  const HostRange& range = it->second;
  *info = {};
  info->base = range.base;
  info->size = range.size;
  info->host = true;
  info->context = range.context;
  info->card = range.context->card;
  info->id = range.id;
  info->host_flags = range.flags;
  return true;
}

bool OverlapsHostMemory(std::uint64_t base, std::uint64_t bytes) {
  const auto next = Ranges().lower_bound(base);
  return (next != Ranges().end() && next->first < base + bytes) || Holder(base) != Ranges().end();
}

void EndHostMemoryOf(Context& context) {
  MemoryLock lock;
  for (auto it = Ranges().begin(); it != Ranges().end();) {
    if (it->second.context != &context) {
      ++it;
      continue;
    }
    if (it->second.allocated) Unmap(it->second);
    it = Ranges().erase(it);
  }
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuMemHostAlloc)(void** pointer, std::size_t bytes, unsigned flags) {
  return Allocate(pointer, bytes, flags);
}
SIM_API(cuMemAllocHost_v2)(void** pointer, std::size_t bytes) {
  return Allocate(pointer, bytes, 0);
}
SIM_API(cuMemAllocHost)(void** pointer, unsigned bytes) { return Allocate(pointer, bytes, 0); }

SIM_API(cuMemFreeHost)(void* pointer) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (!pointer) return CUDA_SUCCESS;
  SIM_TRY(SynchronizeContext(*context));
  MemoryLock lock;
  const auto it = Ranges().find(reinterpret_cast<std::uint64_t>(pointer));
  if (it == Ranges().end() || !it->second.allocated) return CUDA_ERROR_INVALID_VALUE;
  Unmap(it->second);
  Ranges().erase(it);
  return CUDA_SUCCESS;
}

SIM_API(cuMemHostRegister_v2)(void* pointer, std::size_t bytes, unsigned flags) {
  return Register(pointer, bytes, flags);
}
SIM_API(cuMemHostRegister)(void* pointer, std::size_t bytes, unsigned flags) {
  return Register(pointer, bytes, flags);
}

SIM_API(cuMemHostUnregister)(void* pointer) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  MemoryLock lock;
  const auto it = Ranges().find(reinterpret_cast<std::uint64_t>(pointer));
  if (it == Ranges().end() || it->second.allocated) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  Ranges().erase(it);
  return CUDA_SUCCESS;
}

SIM_API(cuMemHostGetDevicePointer_v2)(CUdeviceptr* device, void* pointer, unsigned flags) {
  if (!device || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  MemoryLock lock;
  if (Holder(reinterpret_cast<std::uint64_t>(pointer)) == Ranges().end())
    return CUDA_ERROR_INVALID_VALUE;
  *device = reinterpret_cast<CUdeviceptr>(pointer);  // one address space for both sides
  return CUDA_SUCCESS;
}

SIM_API(cuMemHostGetDevicePointer)(CUdeviceptr_v1* device, void* pointer, unsigned flags) {
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr wide = 0;
  SIM_TRY(impl_cuMemHostGetDevicePointer_v2(&wide, pointer, flags));
  if (wide >> 32) return CUDA_ERROR_NOT_SUPPORTED;  // no 32-bit address leads there
  *device = static_cast<CUdeviceptr_v1>(wide);
  return CUDA_SUCCESS;
}

SIM_API(cuMemHostGetFlags)(unsigned* flags, void* pointer) {
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  MemoryLock lock;
  const auto it = Holder(reinterpret_cast<std::uint64_t>(pointer));
  if (it == Ranges().end()) return CUDA_ERROR_INVALID_VALUE;
  *flags =
      it->second.flags | CU_MEMHOSTALLOC_DEVICEMAP;  // always mapped where addresses are unified
  return CUDA_SUCCESS;
}
