// The copy functions that take many copies at once.
#include <algorithm>

#include "sim/cuda/api.h"
#include "sim/cuda/array.h"
#include "sim/cuda/copy.h"

using namespace tessera::sim;

namespace {

constexpr CUmemorytype kArray = CU_MEMORYTYPE_ARRAY, kUnified = CU_MEMORYTYPE_UNIFIED;

CUresult Batch(CUdeviceptr* destinations, CUdeviceptr* sources, std::size_t* sizes,
               std::size_t count, CUmemcpyAttributes* attributes, std::size_t* indices,
               std::size_t attribute_count, std::size_t* failed, CUstream handle) {
  if (failed) *failed = ~std::size_t{0};
  if (!destinations || !sources || !sizes || count == 0 || !attributes || !indices ||
      attribute_count == 0 || attribute_count > count)
    return CUDA_ERROR_INVALID_VALUE;
  if (!handle || handle == CU_STREAM_LEGACY)
    return CUDA_ERROR_INVALID_VALUE;  // documented: not in the legacy stream
  for (std::size_t i = 0; i < attribute_count; ++i)
    if (indices[i] >= count || (i == 0 ? indices[0] != 0 : indices[i] <= indices[i - 1]) ||
        attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
        attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
      return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i)
    if (CUresult result = sizes[i] ? CopyAsync(LinearCopy(destinations[i], kUnified, sources[i],
                                                          kUnified, sizes[i]),
                                               handle)
                                   : CUDA_ERROR_INVALID_VALUE) {
      if (failed) *failed = i;
      return result;
    }
  return CUDA_SUCCESS;
}

// One end of a 3D batch copy: lengths there are in elements, of one byte for pointers on both
// sides.
struct BatchEnd {
  CUmemorytype type;
  CUdeviceptr pointer;
  CUarray array;
  std::size_t x, y, z, pitch, height, element;
};
CUresult EndOf(const CUmemcpy3DOperand& operand, BatchEnd* end) {
  *end = {};
  end->element = 1;
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
    end->type = kUnified;
    end->pointer = operand.op.ptr.ptr;
    end->pitch = operand.op.ptr.rowLength;
    end->height = operand.op.ptr.layerHeight;
    return CUDA_SUCCESS;
  }
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  const Array* array = Find<Array>(operand.op.array.array);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *end = {kArray,
          0,
          operand.op.array.array,
          operand.op.array.offset.x,
          operand.op.array.offset.y,
          operand.op.array.offset.z,
          0,
          0,
          array->element_bytes};
  return CUDA_SUCCESS;
}

CUresult Batch3D(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, std::size_t* failed,
                 unsigned long long flags, CUstream handle) {
  if (failed) *failed = ~std::size_t{0};
  if (!operations || count == 0 || flags != 0 || !handle || handle == CU_STREAM_LEGACY)
    return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const CUDA_MEMCPY3D_BATCH_OP& op = operations[i];
    BatchEnd source, destination;
    CUresult result = EndOf(op.src, &source);
    if (result == CUDA_SUCCESS) result = EndOf(op.dst, &destination);
    if (result == CUDA_SUCCESS && (!op.extent.width || !op.extent.height || !op.extent.depth))
      result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
      const std::size_t element = std::max(source.element, destination.element);
      CUDA_MEMCPY3D copy = LinearCopy(destination.pointer, destination.type, source.pointer,
                                      source.type, op.extent.width * element);
      copy.srcArray = source.array;
      copy.srcXInBytes = source.x * element;
      copy.srcY = source.y;
      copy.srcZ = source.z;
      copy.srcPitch = (source.pitch ? source.pitch : op.extent.width) * element;
      copy.srcHeight = source.height ? source.height : op.extent.height;
      copy.dstArray = destination.array;
      copy.dstXInBytes = destination.x * element;
      copy.dstY = destination.y;
      copy.dstZ = destination.z;
      copy.dstPitch = (destination.pitch ? destination.pitch : op.extent.width) * element;
      copy.dstHeight = destination.height ? destination.height : op.extent.height;
      copy.Height = op.extent.height;
      copy.Depth = op.extent.depth;
      result = CopyAsync(copy, handle);
    }
    if (result != CUDA_SUCCESS) {
      if (failed) *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuMemcpyBatchAsync)(CUdeviceptr* d, CUdeviceptr* s, std::size_t* sizes, std::size_t count,
                            CUmemcpyAttributes* attributes, std::size_t* indices,
                            std::size_t attribute_count, std::size_t* failed, CUstream stream) {
  return Batch(d, s, sizes, count, attributes, indices, attribute_count, failed, stream);
}
SIM_API(cuMemcpyBatchAsync_v2)(CUdeviceptr* d, CUdeviceptr* s, std::size_t* sizes,
                               std::size_t count, CUmemcpyAttributes* attributes,
                               std::size_t* indices, std::size_t attribute_count, CUstream stream) {
  return Batch(d, s, sizes, count, attributes, indices, attribute_count, nullptr, stream);
}
SIM_API(cuMemcpy3DBatchAsync)(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations,
                              std::size_t* failed, unsigned long long flags, CUstream stream) {
  return Batch3D(count, operations, failed, flags, stream);
}
SIM_API(cuMemcpy3DBatchAsync_v2)(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations,
                                 unsigned long long flags, CUstream stream) {
  return Batch3D(count, operations, nullptr, flags, stream);
}
