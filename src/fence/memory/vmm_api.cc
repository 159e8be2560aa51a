// cuMemCreate and its kin. A handle that is not known here (imported, host memory, multicast) goes
// to the driver untouched.
#include "memory/live.h"
#include "memory/own_usage.h"
#include "memory/physical.h"
#include "memory/private_copy.h"
#include "memory/underway.h"
#include "real.h"

namespace tessera::fence {
namespace {

// Exported memory that lost its last reference here: the driver says whether it is gone.
void SettleExports() {
  for (int card = 0; card < static_cast<int>(contract::kMaxCards); ++card) {
    if (AnyOutstanding(card)) SettleOwn(card);
  }
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                             const CUmemAllocationProp* prop, unsigned long long flags) {
  if (!Fenced() || handle == nullptr || prop == nullptr)
    return real::cuMemCreate(handle, size, prop, flags);
  const PrivateCopy wanted(prop);
  if (wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return real::cuMemCreate(handle, size, wanted.get(), flags);
  const int card = CardOfDevice(wanted->location.id);
  if (card == kUnknownCard) return real::cuMemCreate(handle, size, wanted.get(), flags);
  // Sizes must be a multiple of the card's granularity: what is asked is what is taken.
  const Underway underway;
  Reservation reserved(card, Kind::kVmm, size);
  if (!reserved.granted()) return Refuse(card, size);
  CUmemGenericAllocationHandle made = 0;
  const CUresult result = real::cuMemCreate(&made, size, wanted.get(), flags);
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
  Underway underway;
  const Released released = BeginRelease(handle);
  const CUresult result = real::cuMemRelease(handle);
  if (result == CUDA_SUCCESS) {
    EndRelease(released);
  } else {
    UndoRelease(handle, released);
  }
  underway.End();
  SettleExports();
  return result;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  if (!Fenced() || handle == nullptr) return real::cuMemRetainAllocationHandle(handle, address);
  CUmemGenericAllocationHandle retained = 0;
  const CUresult result = real::cuMemRetainAllocationHandle(&retained, address);
  if (result != CUDA_SUCCESS) return result;
  RetainPhysical(retained, reinterpret_cast<std::uint64_t>(address));
  *handle = retained;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (!Fenced()) return real::cuMemMap(pointer, size, offset, handle, flags);
  const std::uint32_t record = HoldPhysical(handle);
  const CUresult result = real::cuMemMap(pointer, size, offset, handle, flags);
  result == CUDA_SUCCESS ? MapPhysical(pointer, size, record) : LetGo(record);
  return result;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr pointer, size_t size) {
  if (!Fenced()) return real::cuMemUnmap(pointer, size);
  Underway underway;
  const std::uint32_t token = BeginUnmap(pointer, size);
  const CUresult result = real::cuMemUnmap(pointer, size);
  result == CUDA_SUCCESS ? EndUnmap(token) : UndoUnmap(token);
  underway.End();
  SettleExports();
  return result;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type,
                                              unsigned long long flags) {
  if (!Fenced()) return real::cuMemExportToShareableHandle(shareable, handle, type, flags);
  const std::uint32_t record = HoldPhysical(handle);
  const CUresult result = real::cuMemExportToShareableHandle(shareable, handle, type, flags);
  if (result == CUDA_SUCCESS) NoteExport(record);
  LetGo(record);
  return result;
}

}  // extern "C"
