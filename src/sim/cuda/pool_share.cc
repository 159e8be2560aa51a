// Pools in other processes: a pool is exported as a descriptor that names it, an allocation as 64
// bytes that find its pages.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/share.h"

using namespace tessera::sim;

namespace {

struct PoolTicket {
  std::uint32_t magic;
  std::int32_t card;
  std::int32_t pid;
};
constexpr std::uint32_t kPoolMagic = 0x4C4F4F50;  // "POOL"

struct PointerTicket {
  std::uint32_t magic;
  std::int32_t pid;
  std::uint64_t start_ticks;
  std::int32_t descriptor, card;
  std::uint64_t offset, size, bytes;
};
constexpr std::uint32_t kPointerMagic = 0x52544E50;  // "PNTR"
static_assert(sizeof(PointerTicket) <= sizeof(CUmemPoolPtrExportData));

}  // namespace

SIM_API(cuMemPoolExportToShareableHandle)(void* out, CUmemoryPool handle,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  Pool* pool = Find<Pool>(handle);
  if (!out || !pool || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!(pool->properties.handleTypes & type) || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  const int file = memfd_create("tessera-sim-pool-name", MFD_CLOEXEC);
  const PoolTicket ticket{kPoolMagic, pool->card, getpid()};
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (pwrite(file, &ticket, sizeof ticket, 0) != sizeof ticket) {
    close(file);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *static_cast<int*>(out) = file;
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolImportFromShareableHandle)(CUmemoryPool* handle, void* shareable,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  if (!handle || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  PoolTicket ticket{};
  if (pread(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)), &ticket, sizeof ticket,
            0) != sizeof ticket ||
      ticket.magic != kPoolMagic)
    return CUDA_ERROR_INVALID_VALUE;
  const Device* device = DeviceOfCard(ticket.card);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  auto* pool = new (std::nothrow) Pool;
  if (!pool) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->imported = true;
  pool->card = ticket.card;
  pool->properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  pool->properties.handleTypes = type;
  pool->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal};
  pool->access[ticket.card] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  *handle = pool->handle = NewHandle(pool);
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolExportPointer)(CUmemPoolPtrExportData* data, CUdeviceptr pointer) {
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  PointerInfo info;
  if (!FindPointerLocked(pointer, &info) || !info.range ||
      info.range->kind != RangeKind::kPoolChunk || info.base != pointer)
    return CUDA_ERROR_INVALID_VALUE;
  auto& chunk = static_cast<PoolChunk&>(*info.range);
  if (chunk.file < 0) return CUDA_ERROR_INVALID_VALUE;  // of a pool without handle types
  *info.dirty = 1;
  const PointerTicket ticket{kPointerMagic, getpid(),   StartTicks(getpid()),
                             chunk.file,    chunk.card, pointer - chunk.base,
                             info.size,     chunk.bytes};
  std::memset(data, 0, sizeof *data);
  std::memcpy(data->reserved, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}

// The allocation's chunk is mapped; freeing the pointer unmaps it.
SIM_API(cuMemPoolImportPointer)(CUdeviceptr* pointer, CUmemoryPool handle,
                                CUmemPoolPtrExportData* data) {
  const Pool* pool = Find<Pool>(handle);
  if (!pointer || !pool || !pool->imported || !data) return CUDA_ERROR_INVALID_VALUE;
  PointerTicket ticket;
  std::memcpy(&ticket, data->reserved, sizeof ticket);
  if (ticket.magic != kPointerMagic || ticket.card != pool->card || ticket.offset >= ticket.bytes ||
      ticket.size > ticket.bytes - ticket.offset)
    return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  MemoryLock lock;
  Range* range = nullptr;
  SIM_TRY(MapForeign(*context, RangeKind::kPoolImport, ticket.pid, ticket.start_ticks,
                     ticket.descriptor, ticket.bytes, ticket.card, &range));
  range->offset = ticket.offset;
  range->size = ticket.size;
  *pointer = range->base + ticket.offset;
  return CUDA_SUCCESS;
}
