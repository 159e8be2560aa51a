// cuMemCreate and its kin. A handle that is not known here (imported, host memory, multicast) goes
// to the driver untouched.
#include "memory/live.h"
#include "memory/physical.h"
#include "memory/underway.h"
#include "real.h"

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                             const CUmemAllocationProp* prop, unsigned long long flags) {
  if (!Fenced() || handle == nullptr || prop == nullptr ||
      prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return real::cuMemCreate(handle, size, prop, flags);
  }
  const int card = CardOfDevice(prop->location.id);
  if (card == kUnknownCard) return real::cuMemCreate(handle, size, prop, flags);
  // Sizes must be a multiple of the card's granularity: what is asked is what is taken.
  const Underway underway;
  Reservation reserved(card, Kind::kVmm, size);
  if (!reserved.granted()) return Refuse(card, size);
  CUmemGenericAllocationHandle made = 0;
  const CUresult result = real::cuMemCreate(&made, size, prop, flags);
  if (result != CUDA_SUCCESS) return result;
  if (!AddPhysical(made, card, size)) {
    real::cuMemRelease(made);
    return Refuse(card, size);
  }
  reserved.Keep(size);
  *handle = made;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (!Fenced()) return real::cuMemRelease(handle);
  const Underway underway;
  const Released released = BeginRelease(handle);
  const CUresult result = real::cuMemRelease(handle);
  if (result == CUDA_SUCCESS) {
    EndRelease(released);
  } else {
    UndoRelease(handle, released);
  }
  return result;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const CUresult result = real::cuMemRetainAllocationHandle(handle, address);
  if (result == CUDA_SUCCESS && Fenced())
    RetainPhysical(*handle, reinterpret_cast<std::uint64_t>(address));
  return result;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const CUresult result = real::cuMemMap(pointer, size, offset, handle, flags);
  if (result == CUDA_SUCCESS && Fenced()) MapPhysical(pointer, size, handle);
  return result;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr pointer, size_t size) {
  const Underway underway;
  const CUresult result = real::cuMemUnmap(pointer, size);
  if (result == CUDA_SUCCESS && Fenced()) UnmapPhysical(pointer, size);
  return result;
}

}  // extern "C"
