#include "sim/cuda/memop.h"

#include "sim/cuda/api.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/work.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kWriteNs = 1'000;  // 1-2 us on cards

constexpr unsigned kWaitKinds = 3;  // low bits: GEQ, EQ, AND, NOR

template <typename T>
bool Satisfied(T word, T value, unsigned flags) {
  switch (flags & kWaitKinds) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<T>>(word - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (word & value) != 0;
    default:
      return static_cast<T>(~(word | value)) != 0;
  }
}

template <typename T>
Work WaitWork(CUdeviceptr address, T value, unsigned flags) {
  Work work;
  work.ready = [word = reinterpret_cast<const T*>(address), value, flags] {
    return Satisfied<T>(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, flags);
  };
  return work;
}

template <typename T>
Work WriteWork(CUdeviceptr address, T value) {
  Work work;
  work.duration_ns = kWriteNs;
  work.at_its_time = true;
  work.effect = [word = reinterpret_cast<T*>(address), value] {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    NoteWritten(reinterpret_cast<std::uint64_t>(word), sizeof(T));
    MemoryChanged();
  };
  return work;
}

CUresult Reachable(CUdeviceptr address, std::size_t bytes) {
  if (address == 0 || address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemorytype type{};
  const CUresult asked =
      impl_cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  return asked == CUDA_ERROR_INVALID_VALUE ? asked : CUDA_SUCCESS;
}

CUresult OneOp(CUstream handle, const CUstreamBatchMemOpParams& op) {
  CUstreamBatchMemOpParams copy = op;
  return impl_cuStreamBatchMemOp_v2(handle, 1, &copy, 0);
}

template <typename Value>
CUresult Wait(CUstream handle, CUdeviceptr address, Value value, unsigned flags) {
  CUstreamBatchMemOpParams op{};
  op.waitValue.operation =
      sizeof(Value) == 4 ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WAIT_VALUE_64;
  op.waitValue.address = address;
  if (sizeof(Value) == 4) {
    op.waitValue.value = static_cast<cuuint32_t>(value);
  } else {
    op.waitValue.value64 = value;
  }
  op.waitValue.flags = flags;
  return OneOp(handle, op);
}

template <typename Value>
CUresult Write(CUstream handle, CUdeviceptr address, Value value, unsigned flags) {
  CUstreamBatchMemOpParams op{};
  op.writeValue.operation =
      sizeof(Value) == 4 ? CU_STREAM_MEM_OP_WRITE_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_64;
  op.writeValue.address = address;
  if (sizeof(Value) == 4) {
    op.writeValue.value = static_cast<cuuint32_t>(value);
  } else {
    op.writeValue.value64 = value;
  }
  op.writeValue.flags = flags;
  return OneOp(handle, op);
}

}  // namespace

CUresult CheckMemOp(const CUstreamBatchMemOpParams& op) {
  constexpr unsigned kKnownWait = kWaitKinds | CU_STREAM_WAIT_VALUE_FLUSH;
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      if (op.waitValue.flags & ~kKnownWait) return CUDA_ERROR_INVALID_VALUE;
      return Reachable(op.waitValue.address,
                       op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? 4 : 8);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      if (op.writeValue.flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER})
        return CUDA_ERROR_INVALID_VALUE;
      return Reachable(op.writeValue.address,
                       op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8);
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SubmitMemOp(Stream& stream, const CUstreamBatchMemOpParams& op) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return Submit(stream, WaitWork<std::uint32_t>(op.waitValue.address, op.waitValue.value,
                                                    op.waitValue.flags));
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return Submit(stream, WaitWork<std::uint64_t>(op.waitValue.address, op.waitValue.value64,
                                                    op.waitValue.flags));
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return Submit(stream, WriteWork<std::uint32_t>(op.writeValue.address, op.writeValue.value));
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return Submit(stream, WriteWork<std::uint64_t>(op.writeValue.address, op.writeValue.value64));
    default:
      return Submit(stream, Work{});
  }
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuStreamBatchMemOp_v2)(CUstream handle, unsigned count, CUstreamBatchMemOpParams* ops,
                               unsigned flags) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (flags != 0 || count > 256 || (ops == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) SIM_TRY(CheckMemOp(ops[i]));
  if (Capturing(*stream)) {
    NodeParams node;
    node.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    node.context = stream->context->handle;
    node.mem_ops.assign(ops, ops + count);
    return CaptureNode(*stream, std::move(node));
  }
  SIM_TRY(RefuseLegacyCapture(*stream));
  for (unsigned i = 0; i < count; ++i) SIM_TRY(SubmitMemOp(*stream, ops[i]));
  return CUDA_SUCCESS;
}

SIM_API(cuStreamWaitValue32_v2)(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned flags) {
  return Wait(stream, address, value, flags);
}
SIM_API(cuStreamWaitValue64_v2)(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned flags) {
  return Wait(stream, address, value, flags);
}
SIM_API(cuStreamWriteValue32_v2)(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned flags) {
  return Write(stream, address, value, flags);
}
SIM_API(cuStreamWriteValue64_v2)(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned flags) {
  return Write(stream, address, value, flags);
}

// The first ABI differs in the devices that allow it, not in what it does.
SIM_API(cuStreamWaitValue32)(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  return Wait(stream, address, value, flags);
}
SIM_API(cuStreamWaitValue64)(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned flags) {
  return Wait(stream, address, value, flags);
}
SIM_API(cuStreamWriteValue32)(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags) {
  return Write(stream, address, value, flags);
}
SIM_API(cuStreamWriteValue64)(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned flags) {
  return Write(stream, address, value, flags);
}
SIM_API(cuStreamBatchMemOp)(CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops,
                            unsigned flags) {
  return impl_cuStreamBatchMemOp_v2(stream, count, ops, flags);
}
