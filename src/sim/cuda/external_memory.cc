// Memory and semaphores from other APIs (Vulkan and the like), by file descriptor.
#include "sim/cuda/external_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>
#include <set>

#include "sim/cuda/api.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/mipmap.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {
namespace {

struct ExternalMemory {
  static constexpr HandleKind kKind = HandleKind::kExternalMemory;
  using Handle = CUexternalMemory;

  CUexternalMemory handle{};
  Context* context = nullptr;
  int file = -1;  // what the program gave, ours from the import on
  std::uint64_t size = 0, charged = 0;
};

constexpr unsigned kDescriptorTypes = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;

// Whatever the descriptor is, its bytes are needed: one that cannot be mapped is replaced by a file
// of the same size.
bool MakeMappable(ExternalMemory& memory) {
  struct stat info{};
  if (fstat(memory.file, &info) == 0 && S_ISREG(info.st_mode) &&
      static_cast<std::uint64_t>(info.st_size) >= memory.size)
    return true;
  const int own = memfd_create("tessera-sim-external", MFD_CLOEXEC);
  if (own < 0 || ftruncate(own, static_cast<off_t>(RoundUp(memory.size, kUnit))) != 0) {
    if (own >= 0) close(own);
    return false;
  }
  close(memory.file);
  memory.file = own;
  return true;
}

// Maps part of the memory into the device's addresses as a range of the context.
CUresult MapPart(ExternalMemory& memory, std::uint64_t offset, std::uint64_t size,
                 CUdeviceptr* pointer) {
  if (size == 0 || offset > memory.size || size > memory.size - offset)
    return CUDA_ERROR_INVALID_VALUE;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = offset / page * page, bytes = RoundUp(offset - first + size, page);
  MemoryLock lock;
  Context& context = *memory.context;
  if (!context.memory) context.memory = new (std::nothrow) ContextMemory;
  auto* range = new (std::nothrow) Range;
  const std::uint64_t whole = RoundUp(bytes, kUnit);
  const std::uint64_t base = range && context.memory ? TakeAddresses(whole) : 0;
  if (!base || mmap(reinterpret_cast<void*>(base), bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED, memory.file, static_cast<off_t>(first)) == MAP_FAILED) {
    if (base) GiveAddresses(base, whole, true);
    delete range;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  range->kind = RangeKind::kMapped;
  range->shared = range->dirty = true;
  range->card = context.card;
  range->base = base;
  range->bytes = whole;
  range->offset = offset - first;
  range->size = size;
  range->id = NextBufferId();
  PublishRange(*range);
  AttachRange(context, *range);
  *pointer = base + range->offset;
  return CUDA_SUCCESS;
}

void End(ExternalMemory& memory) {
  RemoveHandle<ExternalMemory>(memory.handle);
  close(memory.file);
  UnchargeCard(memory.context->card, memory.charged);
  delete &memory;
}

}  // namespace

void EndExternalMemoryOf(Context& context) {
  ForEach<ExternalMemory>([&](ExternalMemory* memory) {
    if (memory->context == &context) End(*memory);
  });
}

}  // namespace tessera::sim

using namespace tessera::sim;

// The driver owns the descriptor after a successful import.
SIM_API(cuImportExternalMemory)(CUexternalMemory* handle,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* description) {
  if (!handle || !description || description->size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (description->flags & ~static_cast<unsigned>(CUDA_EXTERNAL_MEMORY_DEDICATED))
    return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (description->type != kDescriptorTypes)
    return CUDA_ERROR_NOT_SUPPORTED;  // the others belong to Windows or NvSci
  if (fcntl(description->handle.fd, F_GETFD) < 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t charged = RoundUp(description->size, kUnit);
  if (!ChargeCard(context->card, charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* memory = new (std::nothrow) ExternalMemory;
  if (!memory) {
    UnchargeCard(context->card, charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory->context = context;
  memory->file = description->handle.fd;
  memory->size = description->size;
  memory->charged = charged;
  if (!MakeMappable(*memory)) {
    delete memory;
    UnchargeCard(context->card, charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = memory->handle = NewHandle(memory);
  return CUDA_SUCCESS;
}

SIM_API(cuExternalMemoryGetMappedBuffer)(CUdeviceptr* pointer, CUexternalMemory handle,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* description) {
  ExternalMemory* memory = Find<ExternalMemory>(handle);
  if (!memory) return CUDA_ERROR_INVALID_HANDLE;
  if (!pointer || !description || description->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return MapPart(*memory, description->offset, description->size, pointer);
}

SIM_API(cuExternalMemoryGetMappedMipmappedArray)(
    CUmipmappedArray* mipmap, CUexternalMemory handle,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* description) {
  ExternalMemory* memory = Find<ExternalMemory>(handle);
  if (!memory) return CUDA_ERROR_INVALID_HANDLE;
  if (!mipmap || !description || description->offset >= memory->size)
    return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr pointer = 0;
  const std::uint64_t rest = memory->size - description->offset;
  SIM_TRY(MapPart(*memory, description->offset, rest, &pointer));
  return MakeMipmap(*memory->context, description->arrayDesc, description->numLevels, pointer, rest,
                    mipmap);
}

// Buffers that were mapped stay until they are freed; the card gets its memory back now.
SIM_API(cuDestroyExternalMemory)(CUexternalMemory handle) {
  ExternalMemory* memory = Find<ExternalMemory>(handle);
  if (!memory) return CUDA_ERROR_INVALID_HANDLE;
  End(*memory);
  return CUDA_SUCCESS;
}
