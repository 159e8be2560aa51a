#include "sim/cuda/physical.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <new>
#include <vector>

#include "sim/cuda/api.h"
#include "sim/cuda/extents.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kFileSpan = std::uint64_t{4} << 40;  // sparse
constexpr char kExportName[] =
    "tessera-sim-memory";  // then card and location type: read back at import

struct Backing {
  int file;
  FreeExtents free;
};
constinit Backing* backing = nullptr;

bool TakeBacking(std::uint64_t bytes, int* file, std::uint64_t* offset) {
  if (!backing) {
    const int made = memfd_create("tessera-sim-vmm", MFD_CLOEXEC);
    if (made < 0 || ftruncate(made, static_cast<off_t>(kFileSpan)) != 0) {
      if (made >= 0) close(made);
      return false;
    }
    backing = new Backing{made, {}};
    backing->free.Give(0, kFileSpan);
  }
  if (!backing->free.Take(bytes, kUnit, offset)) return false;
  *file = backing->file;
  return true;
}

void GiveBacking(std::uint64_t offset, std::uint64_t bytes, bool written) {
  if (written)
    fallocate(backing->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  backing->free.Give(offset, bytes);
}

// Copies what is not a hole.
bool CopyWritten(int from, std::uint64_t from_offset, int to, std::uint64_t bytes) {
  const auto end = static_cast<off_t>(from_offset + bytes);
  for (auto at = static_cast<off_t>(from_offset); at < end;) {
    const off_t data = lseek(from, at, SEEK_DATA);
    if (data < 0 || data >= end) return true;
    off_t hole = lseek(from, data, SEEK_HOLE);
    if (hole < 0 || hole > end) hole = end;
    char buffer[65536];
    for (off_t i = data; i < hole;) {
      const ssize_t read =
          pread(from, buffer,
                std::min<std::size_t>(sizeof buffer, static_cast<std::size_t>(hole - i)), i);
      if (read <= 0 || pwrite(to, buffer, static_cast<std::size_t>(read),
                              i - static_cast<off_t>(from_offset)) != read)
        return false;
      i += read;
    }
    at = hole;
  }
  return true;
}

// Memory whose last reference here is gone while a descriptor or an importer still holds it.
std::vector<Physical*>& HeldByOthers() {
  static auto* held = new std::vector<Physical*>;
  return *held;
}

// A further opening of an exported file, with a shared lock that ends with its last duplicate in
// any process. -1 on failure.
int OpenAgain(int file) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  const int again = open(path, O_RDWR | O_CLOEXEC);
  if (again >= 0 && flock(again, LOCK_SH) != 0) {
    close(again);
    return -1;
  }
  return again;
}

bool IsHeldByOthers(const Physical& memory) {
  if (!memory.own_file || memory.imported) return false;
  if (flock(memory.file, LOCK_EX | LOCK_NB) != 0) return true;
  flock(memory.file, LOCK_UN);
  return false;
}

void FreePhysical(Physical& memory) {
  if (memory.own_file)
    close(memory.file);
  else
    GiveBacking(memory.offset, memory.size, memory.dirty || UntrackedWrites());
  if (!memory.imported && memory.card >= 0) UnchargeCard(memory.card, memory.size);
  delete &memory;
}

void FreeIfDone(Physical& memory) {
  if (memory.references != 0 || memory.uses != 0) return;
  if (IsHeldByOthers(memory)) {
    HeldByOthers().push_back(&memory);
  } else {
    FreePhysical(memory);
  }
}

}  // namespace

bool CardOfLocation(const CUmemLocation& location, int* card) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: {
      const Device* device = FindDevice(location.id);
      if (device) *card = device->card;
      return device;
    }
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      *card = -1;
      return true;
    default:
      return false;
  }
}

CUresult MakePhysical(const CUmemAllocationProp& properties, int card, std::uint64_t size,
                      Physical** made) {
  SweepExports();
  if (card >= 0 && !ChargeCard(card, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* memory = new (std::nothrow) Physical;
  if (!memory || !TakeBacking(size, &memory->file, &memory->offset)) {
    delete memory;
    if (card >= 0) UnchargeCard(card, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory->properties = properties;
  memory->card = card;
  memory->size = size;
  memory->id = NextBufferId();
  memory->references = 1;
  memory->handle = NewHandle(memory);
  *made = memory;
  return CUDA_SUCCESS;
}

CUresult ExportPhysical(Physical& memory, int* descriptor) {
  if (!memory.own_file) {
    char name[64];
    std::snprintf(name, sizeof name, "%s.%d.%d", kExportName, memory.card,
                  static_cast<int>(memory.properties.location.type));
    const int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (ftruncate(file, static_cast<off_t>(memory.size)) != 0 ||
        !CopyWritten(memory.file, memory.offset, file, memory.size)) {
      close(file);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    GiveBacking(memory.offset, memory.size, memory.dirty || UntrackedWrites());
    memory.file = file;
    memory.offset = 0;
    memory.own_file = true;
    for (const Mapping* mapping : memory.mappings) ShowMapping(*mapping);
  }
  memory.dirty = 1;  // others write there unseen
  *descriptor = OpenAgain(memory.file);
  return *descriptor < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult ImportPhysical(int descriptor, Physical** made) {
  // Our own exports are told by the file's name, which the kernel keeps.
  char link[64], name[128] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  int card = -1, location = 0;
  struct stat info{};
  if (readlink(link, name, sizeof name - 1) < 0 ||
      std::sscanf(name, "/memfd:tessera-sim-memory.%d.%d", &card, &location) != 2 ||
      fstat(descriptor, &info) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const Device* device = card >= 0 ? DeviceOfCard(card) : nullptr;
  if (card >= 0 && !device) return CUDA_ERROR_INVALID_DEVICE;
  auto* memory = new (std::nothrow) Physical;
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->file = OpenAgain(descriptor);
  if (memory->file < 0) {
    delete memory;
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  memory->own_file = memory->imported = true;
  memory->dirty = 1;
  memory->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  memory->properties.location = {static_cast<CUmemLocationType>(location),
                                 device ? device->ordinal : 0};
  memory->card = card;
  memory->size = static_cast<std::uint64_t>(info.st_size);
  memory->id = NextBufferId();
  memory->references = 1;
  memory->handle = NewHandle(memory);
  *made = memory;
  return CUDA_SUCCESS;
}

void DropReference(Physical& memory) {
  if (--memory.references == 0) {
    RemoveHandle<Physical>(memory.handle);
    memory.handle = 0;
  }
  FreeIfDone(memory);
}

void DropUse(Physical& memory) {
  --memory.uses;
  FreeIfDone(memory);
}

void SweepExports() {
  std::erase_if(HeldByOthers(), [](Physical* memory) {
    if (IsHeldByOthers(*memory)) return false;
    FreePhysical(*memory);
    return true;
  });
}

bool ShowMapping(const Mapping& mapping) {
  int protection = mapping.host_access & CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (int access : mapping.access) protection |= access;
  const int host = (protection ? PROT_READ : 0) |
                   (protection == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : 0);
  return mmap(reinterpret_cast<void*>(mapping.base), mapping.size, host, MAP_SHARED | MAP_FIXED,
              mapping.memory->file,
              static_cast<off_t>(mapping.memory->offset + mapping.offset)) != MAP_FAILED;
}

void SpendHostTime(std::uint64_t ns_per_block, std::uint64_t bytes) {
  const Costs& costs = Node()->costs;
  if (costs.host_ns_scale_permille == 0) return;
  SleepUntil(NowNs() +
             ns_per_block * (RoundUp(bytes, kUnit) / kUnit) * costs.host_ns_scale_permille / 1000);
}

}  // namespace tessera::sim
