// The copy functions. All become a CUDA_MEMCPY3D (copy.h); the second half of each name says who
// waits.
#include "sim/cuda/api.h"
#include "sim/cuda/array.h"
#include "sim/cuda/copy.h"
#include "sim/cuda/memory.h"

using namespace tessera::sim;

namespace {

constexpr CUmemorytype kHost = CU_MEMORYTYPE_HOST, kDevice = CU_MEMORYTYPE_DEVICE,
                       kArray = CU_MEMORYTYPE_ARRAY, kUnified = CU_MEMORYTYPE_UNIFIED;

std::uint64_t Bits(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// Copies that wait: all but those inside one card, for which the driver does not make the host
// wait.
CUresult Sync(const CUDA_MEMCPY3D& copy) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(PerThreadDefaultStream::Default(), &stream));
  SIM_TRY(ForbiddenInCapture());
  SIM_TRY(SubmitCopy(*stream, copy));
  const bool inside = (copy.srcMemoryType == kDevice || copy.srcMemoryType == kArray) &&
                      (copy.dstMemoryType == kDevice || copy.dstMemoryType == kArray);
  return inside ? CUDA_SUCCESS : Synchronize(*stream);
}

template <typename Copy2D>
CUDA_MEMCPY3D From2D(const Copy2D& in) {
  CUDA_MEMCPY3D copy{};
  copy.srcXInBytes = in.srcXInBytes;
  copy.srcY = in.srcY;
  copy.srcMemoryType = in.srcMemoryType;
  copy.srcHost = in.srcHost;
  copy.srcDevice = in.srcDevice;
  copy.srcArray = in.srcArray;
  copy.srcPitch = in.srcPitch ? in.srcPitch : in.WidthInBytes + in.srcXInBytes;
  copy.srcHeight = in.Height + in.srcY;
  copy.dstXInBytes = in.dstXInBytes;
  copy.dstY = in.dstY;
  copy.dstMemoryType = in.dstMemoryType;
  copy.dstHost = in.dstHost;
  copy.dstDevice = in.dstDevice;
  copy.dstArray = in.dstArray;
  copy.dstPitch = in.dstPitch ? in.dstPitch : in.WidthInBytes + in.dstXInBytes;
  copy.dstHeight = in.Height + in.dstY;
  copy.WidthInBytes = in.WidthInBytes;
  copy.Height = in.Height;
  copy.Depth = 1;
  return copy;
}

template <typename Copy3D>
CUDA_MEMCPY3D From3D(const Copy3D& in) {
  CUDA_MEMCPY3D copy = From2D(in);
  copy.srcPitch = in.srcPitch;
  copy.dstPitch = in.dstPitch;
  copy.srcZ = in.srcZ;
  copy.srcLOD = in.srcLOD;
  copy.srcHeight = in.srcHeight;
  copy.dstZ = in.dstZ;
  copy.dstLOD = in.dstLOD;
  copy.dstHeight = in.dstHeight;
  copy.Depth = in.Depth;
  return copy;
}

// Copies from and to arrays in these old forms are counted in bytes through the rows of the array.
struct ArrayRow {
  std::size_t x, y;
};
CUresult RowAt(CUarray handle, std::size_t offset, std::size_t bytes, ArrayRow* row) {
  const Array* array = Find<Array>(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  const std::size_t width = array->element_bytes * array->descriptor.Width;
  if (width == 0 || offset % width + bytes > width) return CUDA_ERROR_INVALID_VALUE;
  *row = {offset % width, offset / width};
  return CUDA_SUCCESS;
}

CUresult ToArray(CUDA_MEMCPY3D* copy, CUarray array, std::size_t offset) {
  ArrayRow row;
  SIM_TRY(RowAt(array, offset, copy->WidthInBytes, &row));
  copy->dstMemoryType = kArray;
  copy->dstArray = array;
  copy->dstXInBytes = row.x;
  copy->dstY = row.y;
  return CUDA_SUCCESS;
}

CUresult FromArray(CUDA_MEMCPY3D* copy, CUarray array, std::size_t offset) {
  ArrayRow row;
  SIM_TRY(RowAt(array, offset, copy->WidthInBytes, &row));
  copy->srcMemoryType = kArray;
  copy->srcArray = array;
  copy->srcXInBytes = row.x;
  copy->srcY = row.y;
  return CUDA_SUCCESS;
}

// Peer copies name the contexts; memory is found by its address in any case.
CUresult CheckPeers(CUcontext destination, CUcontext source) {
  if (!Find<Context>(destination) || !Find<Context>(source)) return CUDA_ERROR_INVALID_CONTEXT;
  return CUDA_SUCCESS;
}

CUresult PeerCopy(const CUDA_MEMCPY3D_PEER& in, CUDA_MEMCPY3D* copy) {
  if (in.srcMemoryType == kDevice && !Find<Context>(in.srcContext))
    return CUDA_ERROR_INVALID_CONTEXT;
  if (in.dstMemoryType == kDevice && !Find<Context>(in.dstContext))
    return CUDA_ERROR_INVALID_CONTEXT;
  *copy = From3D(in);
  return CUDA_SUCCESS;
}

}  // namespace

// Straight copies.
SIM_API(cuMemcpy)(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes) {
  return Sync(LinearCopy(destination, kUnified, source, kUnified, bytes));
}
SIM_API(cuMemcpyAsync)(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes,
                       CUstream stream) {
  return CopyAsync(LinearCopy(destination, kUnified, source, kUnified, bytes), stream);
}
SIM_API(cuMemcpyHtoD_v2)(CUdeviceptr destination, const void* source, std::size_t bytes) {
  return Sync(LinearCopy(destination, kDevice, Bits(source), kHost, bytes));
}
SIM_API(cuMemcpyDtoH_v2)(void* destination, CUdeviceptr source, std::size_t bytes) {
  return Sync(LinearCopy(Bits(destination), kHost, source, kDevice, bytes));
}
SIM_API(cuMemcpyDtoD_v2)(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes) {
  return Sync(LinearCopy(destination, kDevice, source, kDevice, bytes));
}
SIM_API(cuMemcpyHtoDAsync_v2)(CUdeviceptr destination, const void* source, std::size_t bytes,
                              CUstream stream) {
  return CopyAsync(LinearCopy(destination, kDevice, Bits(source), kHost, bytes), stream);
}
SIM_API(cuMemcpyDtoHAsync_v2)(void* destination, CUdeviceptr source, std::size_t bytes,
                              CUstream stream) {
  return CopyAsync(LinearCopy(Bits(destination), kHost, source, kDevice, bytes), stream);
}
SIM_API(cuMemcpyDtoDAsync_v2)(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes,
                              CUstream stream) {
  return CopyAsync(LinearCopy(destination, kDevice, source, kDevice, bytes), stream);
}
SIM_API(cuMemcpyHtoD)(CUdeviceptr_v1 d, const void* s, unsigned n) {
  return impl_cuMemcpyHtoD_v2(d, s, n);
}
SIM_API(cuMemcpyDtoH)(void* d, CUdeviceptr_v1 s, unsigned n) {
  return impl_cuMemcpyDtoH_v2(d, s, n);
}
SIM_API(cuMemcpyDtoD)(CUdeviceptr_v1 d, CUdeviceptr_v1 s, unsigned n) {
  return impl_cuMemcpyDtoD_v2(d, s, n);
}
SIM_API(cuMemcpyHtoDAsync)(CUdeviceptr_v1 d, const void* s, unsigned n, CUstream t) {
  return impl_cuMemcpyHtoDAsync_v2(d, s, n, t);
}
SIM_API(cuMemcpyDtoHAsync)(void* d, CUdeviceptr_v1 s, unsigned n, CUstream t) {
  return impl_cuMemcpyDtoHAsync_v2(d, s, n, t);
}
SIM_API(cuMemcpyDtoDAsync)(CUdeviceptr_v1 d, CUdeviceptr_v1 s, unsigned n, CUstream t) {
  return impl_cuMemcpyDtoDAsync_v2(d, s, n, t);
}

SIM_API(cuMemcpyPeer)(CUdeviceptr d, CUcontext to, CUdeviceptr s, CUcontext from,
                      std::size_t bytes) {
  SIM_TRY(CheckPeers(to, from));
  return Sync(LinearCopy(d, kDevice, s, kDevice, bytes));
}
SIM_API(cuMemcpyPeerAsync)(CUdeviceptr d, CUcontext to, CUdeviceptr s, CUcontext from,
                           std::size_t bytes, CUstream stream) {
  SIM_TRY(CheckPeers(to, from));
  return CopyAsync(LinearCopy(d, kDevice, s, kDevice, bytes), stream);
}

// Arrays by byte offset.
SIM_API(cuMemcpyDtoA_v2)(CUarray array, std::size_t offset, CUdeviceptr source, std::size_t bytes) {
  CUDA_MEMCPY3D copy = LinearCopy(0, kArray, source, kDevice, bytes);
  SIM_TRY(ToArray(&copy, array, offset));
  return Sync(copy);
}
SIM_API(cuMemcpyAtoD_v2)(CUdeviceptr destination, CUarray array, std::size_t offset,
                         std::size_t bytes) {
  CUDA_MEMCPY3D copy = LinearCopy(destination, kDevice, 0, kArray, bytes);
  SIM_TRY(FromArray(&copy, array, offset));
  return Sync(copy);
}
SIM_API(cuMemcpyHtoA_v2)(CUarray array, std::size_t offset, const void* source, std::size_t bytes) {
  CUDA_MEMCPY3D copy = LinearCopy(0, kArray, Bits(source), kHost, bytes);
  SIM_TRY(ToArray(&copy, array, offset));
  return Sync(copy);
}
SIM_API(cuMemcpyAtoH_v2)(void* destination, CUarray array, std::size_t offset, std::size_t bytes) {
  CUDA_MEMCPY3D copy = LinearCopy(Bits(destination), kHost, 0, kArray, bytes);
  SIM_TRY(FromArray(&copy, array, offset));
  return Sync(copy);
}
SIM_API(cuMemcpyAtoA_v2)(CUarray to, std::size_t to_offset, CUarray from, std::size_t from_offset,
                         std::size_t bytes) {
  CUDA_MEMCPY3D copy = LinearCopy(0, kArray, 0, kArray, bytes);
  SIM_TRY(ToArray(&copy, to, to_offset));
  SIM_TRY(FromArray(&copy, from, from_offset));
  return Sync(copy);
}
SIM_API(cuMemcpyHtoAAsync_v2)(CUarray array, std::size_t offset, const void* source,
                              std::size_t bytes, CUstream stream) {
  CUDA_MEMCPY3D copy = LinearCopy(0, kArray, Bits(source), kHost, bytes);
  SIM_TRY(ToArray(&copy, array, offset));
  return CopyAsync(copy, stream);
}
SIM_API(cuMemcpyAtoHAsync_v2)(void* destination, CUarray array, std::size_t offset,
                              std::size_t bytes, CUstream stream) {
  CUDA_MEMCPY3D copy = LinearCopy(Bits(destination), kHost, 0, kArray, bytes);
  SIM_TRY(FromArray(&copy, array, offset));
  return CopyAsync(copy, stream);
}
SIM_API(cuMemcpyDtoA)(CUarray a, unsigned o, CUdeviceptr_v1 s, unsigned n) {
  return impl_cuMemcpyDtoA_v2(a, o, s, n);
}
SIM_API(cuMemcpyAtoD)(CUdeviceptr_v1 d, CUarray a, unsigned o, unsigned n) {
  return impl_cuMemcpyAtoD_v2(d, a, o, n);
}
SIM_API(cuMemcpyHtoA)(CUarray a, unsigned o, const void* s, unsigned n) {
  return impl_cuMemcpyHtoA_v2(a, o, s, n);
}
SIM_API(cuMemcpyAtoH)(void* d, CUarray a, unsigned o, unsigned n) {
  return impl_cuMemcpyAtoH_v2(d, a, o, n);
}
SIM_API(cuMemcpyAtoA)(CUarray d, unsigned p, CUarray s, unsigned o, unsigned n) {
  return impl_cuMemcpyAtoA_v2(d, p, s, o, n);
}
SIM_API(cuMemcpyHtoAAsync)(CUarray a, unsigned o, const void* s, unsigned n, CUstream t) {
  return impl_cuMemcpyHtoAAsync_v2(a, o, s, n, t);
}
SIM_API(cuMemcpyAtoHAsync)(void* d, CUarray a, unsigned o, unsigned n, CUstream t) {
  return impl_cuMemcpyAtoHAsync_v2(d, a, o, n, t);
}

// Two and three dimensions.
SIM_API(cuMemcpy2D_v2)(const CUDA_MEMCPY2D* copy) {
  return copy ? Sync(From2D(*copy)) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuMemcpy2DUnaligned_v2)(const CUDA_MEMCPY2D* copy) {
  return copy ? Sync(From2D(*copy)) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuMemcpy3D_v2)(const CUDA_MEMCPY3D* copy) {
  return copy ? Sync(*copy) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuMemcpy2DAsync_v2)(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy ? CopyAsync(From2D(*copy), stream) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuMemcpy3DAsync_v2)(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy ? CopyAsync(*copy, stream) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuMemcpy2D)(const CUDA_MEMCPY2D_v1* copy) {
  return copy ? Sync(From2D(*copy)) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuMemcpy2DUnaligned)(const CUDA_MEMCPY2D_v1* copy) {
  return copy ? Sync(From2D(*copy)) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuMemcpy3D)(const CUDA_MEMCPY3D_v1* copy) {
  return copy ? Sync(From3D(*copy)) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuMemcpy2DAsync)(const CUDA_MEMCPY2D_v1* copy, CUstream stream) {
  return copy ? CopyAsync(From2D(*copy), stream) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuMemcpy3DAsync)(const CUDA_MEMCPY3D_v1* copy, CUstream stream) {
  return copy ? CopyAsync(From3D(*copy), stream) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuMemcpy3DPeer)(const CUDA_MEMCPY3D_PEER* in) {
  CUDA_MEMCPY3D copy;
  if (!in) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(PeerCopy(*in, &copy));
  return Sync(copy);
}
SIM_API(cuMemcpy3DPeerAsync)(const CUDA_MEMCPY3D_PEER* in, CUstream stream) {
  CUDA_MEMCPY3D copy;
  if (!in) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(PeerCopy(*in, &copy));
  return CopyAsync(copy, stream);
}
