#include "sim/cuda/share.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {
namespace {

// Range base -> its file. Guarded by MemoryLock.
std::map<std::uint64_t, int>& Files() {
  static auto* files = new std::map<std::uint64_t, int>;
  return *files;
}

// What cuIpcGetMemHandle puts into the 64 bytes.
struct MemoryTicket {
  std::uint32_t magic;
  std::int32_t pid;
  std::uint64_t start_ticks;
  std::int32_t descriptor, card;
  std::uint64_t offset, size, bytes, id;
};
constexpr std::uint32_t kMemoryMagic = 0x4D495354;  // "TSIM"
static_assert(sizeof(MemoryTicket) <= CU_IPC_HANDLE_SIZE);

// Ranges opened here, by the ticket's (pid, id) and the context: opening twice gives the same
// address.
struct Opened {
  Range* range;
  std::uint64_t offset;
  int count;
};
using OpenKey = std::pair<std::pair<int, std::uint64_t>, Context*>;
std::map<OpenKey, Opened>& OpenHandles() {
  static auto* handles = new std::map<OpenKey, Opened>;
  return *handles;
}

bool CopyPages(const Range& range, int file) {
  // Pages that were never touched are holes in the file as well.
  constexpr std::uint64_t kPage = 4096, kStep = 256;
  unsigned char resident[kStep];
  for (std::uint64_t at = 0; at < range.bytes; at += kStep * kPage) {
    const std::uint64_t bytes = std::min(kStep * kPage, range.bytes - at);
    if (mincore(reinterpret_cast<void*>(range.base + at), bytes, resident) != 0) return false;
    for (std::uint64_t i = 0; i < bytes / kPage; ++i) {
      if (!(resident[i] & 1)) continue;
      const std::uint64_t offset = at + i * kPage;
      if (pwrite(file, reinterpret_cast<void*>(range.base + offset), kPage,
                 static_cast<off_t>(offset)) != static_cast<ssize_t>(kPage))
        return false;
    }
  }
  return true;
}

}  // namespace

std::uint64_t StartTicks(int pid) {
  char path[32], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* after = std::strrchr(text, ')');  // the command may hold anything
  unsigned long long ticks = 0;
  if (!after ||
      std::sscanf(
          after + 1,
          " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
          &ticks) != 1)
    return 0;
  return ticks;
}

int ShareRange(Range& range) {
  const auto found = Files().find(range.base);
  if (found != Files().end()) return found->second;
  const int file = memfd_create("tessera-sim-ipc", MFD_CLOEXEC);
  if (file < 0) return -1;
  if (ftruncate(file, static_cast<off_t>(range.bytes)) != 0 || !CopyPages(range, file) ||
      mmap(reinterpret_cast<void*>(range.base), range.bytes, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    close(file);
    return -1;
  }
  range.shared = true;
  range.dirty = true;
  Files()[range.base] = file;
  return file;
}

void ForgetExport(Range& range) {
  const auto found = Files().find(range.base);
  if (found != Files().end()) {
    close(found->second);
    Files().erase(found);
  }
  if (range.kind == RangeKind::kImported)
    std::erase_if(OpenHandles(), [&](const auto& entry) { return entry.second.range == &range; });
}

CUresult MapForeign(Context& context, RangeKind kind, int pid, std::uint64_t start_ticks,
                    int descriptor, std::uint64_t bytes, int card, Range** made) {
  if (!bytes || bytes % kUnit || StartTicks(pid) != start_ticks) return CUDA_ERROR_INVALID_VALUE;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, descriptor);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  struct stat info{};
  if (file < 0 || fstat(file, &info) != 0 || static_cast<std::uint64_t>(info.st_size) < bytes) {
    if (file >= 0) close(file);
    return CUDA_ERROR_MAP_FAILED;
  }
  if (!context.memory) context.memory = new (std::nothrow) ContextMemory;
  auto* range = new (std::nothrow) Range;
  const std::uint64_t base = range && context.memory ? TakeAddresses(bytes) : 0;
  if (!base || mmap(reinterpret_cast<void*>(base), bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    if (base) GiveAddresses(base, bytes, true);
    delete range;
    close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  close(file);
  range->kind = kind;
  range->shared = range->dirty = true;
  range->card = card;
  range->base = base;
  range->bytes = range->size = bytes;
  range->id = NextBufferId();
  PublishRange(*range);
  AttachRange(context, *range);
  *made = range;
  return CUDA_SUCCESS;
}

}  // namespace tessera::sim

using namespace tessera::sim;

namespace {

CUresult Open(CUdeviceptr* pointer, const CUipcMemHandle& handle, unsigned flags) {
  if (!pointer || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  MemoryTicket ticket;
  std::memcpy(&ticket, handle.reserved, sizeof ticket);
  if (ticket.magic != kMemoryMagic) return CUDA_ERROR_INVALID_VALUE;
  if (ticket.pid == getpid())
    return CUDA_ERROR_INVALID_CONTEXT;  // documented: not in the process that made it
  if (!DeviceOfCard(ticket.card)) return CUDA_ERROR_INVALID_DEVICE;
  MemoryLock lock;
  const OpenKey key{{ticket.pid, ticket.id}, context};
  const auto known = OpenHandles().find(key);
  if (known != OpenHandles().end()) {
    ++known->second.count;
    *pointer = known->second.range->base + known->second.offset;
    return CUDA_SUCCESS;
  }
  Range* range = nullptr;
  SIM_TRY(MapForeign(*context, RangeKind::kImported, ticket.pid, ticket.start_ticks,
                     ticket.descriptor, ticket.bytes, ticket.card, &range));
  if (ticket.offset >= ticket.bytes || ticket.size > ticket.bytes - ticket.offset) {
    EndImported(*range);
    return CUDA_ERROR_INVALID_VALUE;
  }
  range->offset = ticket.offset;
  range->size = ticket.size;
  OpenHandles()[key] = {range, ticket.offset, 1};
  *pointer = range->base + ticket.offset;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuIpcGetMemHandle)(CUipcMemHandle* handle, CUdeviceptr pointer) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  MemoryLock lock;
  PointerInfo info;
  if (!FindPointerLocked(pointer, &info) || !info.range ||
      (info.range->kind != RangeKind::kBlock && info.range->kind != RangeKind::kLarge))
    return CUDA_ERROR_INVALID_VALUE;
  const int file = ShareRange(*info.range);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (info.dirty) *info.dirty = 1;
  const MemoryTicket ticket{kMemoryMagic, getpid(),          StartTicks(getpid()),
                            file,         info.range->card,  info.base - info.range->base,
                            info.size,    info.range->bytes, info.id};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle->reserved, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}

SIM_API(cuIpcOpenMemHandle_v2)(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  return Open(pointer, handle, flags);
}
SIM_API(cuIpcOpenMemHandle)(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  return Open(pointer, handle, flags);
}

SIM_API(cuIpcCloseMemHandle)(CUdeviceptr pointer) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(SynchronizeContext(*context));
  MemoryLock lock;
  Range* range = FindRange(pointer);
  if (!range || range->kind != RangeKind::kImported) return CUDA_ERROR_INVALID_VALUE;
  for (auto& [key, opened] : OpenHandles())
    if (opened.range == range && range->base + opened.offset == pointer) {
      if (--opened.count == 0) EndImported(*range);
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_VALUE;
}
