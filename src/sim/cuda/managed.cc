#include "sim/cuda/managed.h"

#include <map>
#include <set>

#include "sim/cuda/api.h"
#include "sim/cuda/physical.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {
namespace {

constexpr CUmemLocation kNowhere{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};

// Kept per allocation, not per page: hints on a part count for the whole.
struct Hints {
  bool read_mostly = false;
  CUmemLocation preferred = kNowhere, last_prefetch = kNowhere;
  std::set<int> accessed_by;  // ordinals, CU_DEVICE_CPU
};

// By buffer id; guarded by MemoryLock.
std::map<std::uint64_t, Hints>& AllHints() {
  static auto* hints = new std::map<std::uint64_t, Hints>;
  return *hints;
}

bool IsHost(const CUmemLocation& location) { return location.type != CU_MEM_LOCATION_TYPE_DEVICE; }
int IdOf(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_INVALID) return CU_DEVICE_INVALID;
  return IsHost(location) && location.type == CU_MEM_LOCATION_TYPE_HOST ? CU_DEVICE_CPU
                                                                        : location.id;
}

CUmemLocation FromDevice(CUdevice device) {
  return device == CU_DEVICE_CPU ? CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, 0}
                                 : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device};
}

// Managed memory that holds the whole range.
CUresult FindManaged(CUdeviceptr pointer, std::size_t count, PointerInfo* info) {
  if (count == 0 || !FindPointerLocked(pointer, info) || !info->managed ||
      count > info->base + info->size - pointer)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult Advise(CUdeviceptr pointer, std::size_t count, CUmem_advise advice,
                CUmemLocation location) {
  int card = -1;
  const bool needs_location = advice != CU_MEM_ADVISE_SET_READ_MOSTLY &&
                              advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
                              advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
  if (needs_location && !CardOfLocation(location, &card)) return CUDA_ERROR_INVALID_DEVICE;
  MemoryLock lock;
  PointerInfo info;
  SIM_TRY(FindManaged(pointer, count, &info));
  Hints& hints = AllHints()[info.id];
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
      hints.read_mostly = true;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      hints.read_mostly = false;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      hints.preferred = location;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      hints.preferred = kNowhere;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      hints.accessed_by.insert(IdOf(location));
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      hints.accessed_by.erase(IdOf(location));
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Moving pages takes the link; where they are makes no other difference here.
CUresult Prefetch(CUdeviceptr pointer, std::size_t count, CUmemLocation location, unsigned flags,
                  CUstream handle) {
  int card = -1;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!CardOfLocation(location, &card)) return CUDA_ERROR_INVALID_DEVICE;
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  {
    MemoryLock lock;
    PointerInfo info;
    SIM_TRY(FindManaged(pointer, count, &info));
    AllHints()[info.id].last_prefetch = location;
  }
  const std::uint64_t rate =
      std::max<std::uint64_t>(1, stream->context->device->spec->link_bytes_per_s);
  const auto duration =
      static_cast<std::uint64_t>(static_cast<double>(count) * 1e9 / static_cast<double>(rate));
  return Enqueue(*stream, card >= 0 ? EngineKind::kToCard : EngineKind::kFromCard, duration, {});
}

CUresult RangeAttribute(void* data, std::size_t size, CUmem_range_attribute attribute,
                        CUdeviceptr pointer, std::size_t count) {
  if (!data || size == 0 || size % sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
  MemoryLock lock;
  PointerInfo info;
  SIM_TRY(FindManaged(pointer, count, &info));
  const auto found = AllHints().find(info.id);
  const Hints hints = found == AllHints().end() ? Hints{} : found->second;
  auto* out = static_cast<int*>(data);
  if (attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY && size != sizeof(int))
    return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *out = hints.read_mostly;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      *out = IdOf(hints.preferred);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      *out = hints.preferred.type;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      *out = hints.preferred.id;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      *out = IdOf(hints.last_prefetch);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      *out = hints.last_prefetch.type;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      *out = hints.last_prefetch.id;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      auto device = hints.accessed_by.begin();
      for (std::size_t i = 0; i < size / sizeof(int); ++i)
        out[i] = device == hints.accessed_by.end() ? CU_DEVICE_INVALID : *device++;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// A batch names ranges, and locations that count from a range on.
CUresult PrefetchBatch(CUdeviceptr* pointers, std::size_t* sizes, std::size_t count,
                       CUmemLocation* locations, std::size_t* indices, std::size_t location_count,
                       unsigned long long flags, CUstream stream) {
  if (!pointers || !sizes || count == 0 || !locations || !indices || location_count == 0 ||
      location_count > count || flags != 0 || indices[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::size_t location = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (location + 1 < location_count && indices[location + 1] <= i) ++location;
    SIM_TRY(Prefetch(pointers[i], sizes[i], locations[location], 0, stream));
  }
  return CUDA_SUCCESS;
}

// The contents of discarded memory are nobody's: they read as zeros.
CUresult DiscardBatch(CUdeviceptr* pointers, std::size_t* sizes, std::size_t count,
                      unsigned long long flags, CUstream handle) {
  if (!pointers || !sizes || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  for (std::size_t i = 0; i < count; ++i) {
    MemoryLock lock;
    PointerInfo info;
    SIM_TRY(FindManaged(pointers[i], sizes[i], &info));
  }
  for (std::size_t i = 0; i < count; ++i)
    SIM_TRY(Enqueue(*stream, EngineKind::kNone, 0,
                    [base = pointers[i], bytes = sizes[i]] { ZeroDeviceBytes(base, bytes); }));
  return CUDA_SUCCESS;
}

}  // namespace

void ForgetManaged(const Range& range) { AllHints().erase(range.id); }

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuMemAdvise_v2)(CUdeviceptr p, std::size_t n, CUmem_advise advice, CUmemLocation location) {
  return Advise(p, n, advice, location);
}
SIM_API(cuMemAdvise)(CUdeviceptr p, std::size_t n, CUmem_advise advice, CUdevice device) {
  return Advise(p, n, advice, FromDevice(device));
}
SIM_API(cuMemPrefetchAsync_v2)(CUdeviceptr p, std::size_t n, CUmemLocation location, unsigned flags,
                               CUstream stream) {
  return Prefetch(p, n, location, flags, stream);
}
SIM_API(cuMemPrefetchAsync)(CUdeviceptr p, std::size_t n, CUdevice device, CUstream stream) {
  return Prefetch(p, n, FromDevice(device), 0, stream);
}

SIM_API(cuMemRangeGetAttribute)(void* data, std::size_t size, CUmem_range_attribute attribute,
                                CUdeviceptr pointer, std::size_t count) {
  return RangeAttribute(data, size, attribute, pointer, count);
}
SIM_API(cuMemRangeGetAttributes)(void** data, std::size_t* sizes, CUmem_range_attribute* attributes,
                                 std::size_t number, CUdeviceptr pointer, std::size_t count) {
  if (!data || !sizes || !attributes || number == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < number; ++i)
    SIM_TRY(RangeAttribute(data[i], sizes[i], attributes[i], pointer, count));
  return CUDA_SUCCESS;
}

SIM_API(cuMemPrefetchBatchAsync)(CUdeviceptr* p, std::size_t* sizes, std::size_t count,
                                 CUmemLocation* locations, std::size_t* indices,
                                 std::size_t location_count, unsigned long long flags,
                                 CUstream stream) {
  return PrefetchBatch(p, sizes, count, locations, indices, location_count, flags, stream);
}
SIM_API(cuMemDiscardBatchAsync)(CUdeviceptr* p, std::size_t* sizes, std::size_t count,
                                unsigned long long flags, CUstream stream) {
  return DiscardBatch(p, sizes, count, flags, stream);
}
SIM_API(cuMemDiscardAndPrefetchBatchAsync)(CUdeviceptr* p, std::size_t* sizes, std::size_t count,
                                           CUmemLocation* locations, std::size_t* indices,
                                           std::size_t location_count, unsigned long long flags,
                                           CUstream stream) {
  SIM_TRY(DiscardBatch(p, sizes, count, flags, stream));
  return PrefetchBatch(p, sizes, count, locations, indices, location_count, flags, stream);
}
