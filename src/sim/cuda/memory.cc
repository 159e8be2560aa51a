// Device memory: allocation, and the way back from an address.
#include "sim/cuda/memory.h"

#include <algorithm>
#include <new>

#include "sim/cuda/api.h"
#include "sim/cuda/array.h"
#include "sim/cuda/external_memory.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/host_memory.h"
#include "sim/cuda/managed.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/share.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/texture.h"
#include "sim/cuda/vmm.h"

namespace tessera::sim {
namespace {

constinit std::atomic<bool> untracked_writes{false};

// Row pitch of cuMemAllocPitch: rows start at multiples of 512 bytes (texture alignment of every
// simulated card).
constexpr std::uint64_t kPitchAlignment = 512;

ContextMemory* MemoryOf(Context& context) {
  if (!context.memory) context.memory = new (std::nothrow) ContextMemory;
  return context.memory;
}

// MemoryLock held; the card is charged already.
CUresult NewRange(Context& context, RangeKind kind, std::uint64_t size, bool low, Range** made) {
  auto* range = new (std::nothrow) Range;
  const std::uint64_t bytes = RoundUp(size, kUnit);
  const std::uint64_t base = range ? TakeAddresses(bytes, 0, low) : 0;
  if (!base) {
    delete range;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  range->kind = kind;
  range->base = base;
  range->bytes = bytes;
  range->size = size;
  range->card = context.card;
  range->id = NextBufferId();
  PublishRange(*range);
  AttachRange(context, *range);
  *made = range;
  return CUDA_SUCCESS;
}

CUresult AllocateLarge(Context& context, RangeKind kind, std::uint64_t size, bool low,
                       CUdeviceptr* pointer) {
  const std::uint64_t bytes = RoundUp(size, kUnit);
  if (bytes < size || !ChargeCard(context.card, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Range* range = nullptr;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  {
    MemoryLock lock;
    if (MemoryOf(context)) result = NewRange(context, kind, size, low, &range);
  }
  if (result == CUDA_SUCCESS)
    *pointer = range->base;
  else
    UnchargeCard(context.card, bytes);
  return result;
}

CUresult AllocateSmall(Context& context, std::uint64_t size, CUdeviceptr* pointer) {
  MemoryLock lock;
  ContextMemory* memory = MemoryOf(context);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  std::uint64_t address = TakeSmall(memory->buckets, size);
  if (!address) {
    if (!ChargeCard(context.card, kUnit)) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::uint64_t base = TakeAddresses(kUnit);
    Block* block = base ? AddBlock(memory->buckets, base) : nullptr;
    if (!block) {
      if (base) GiveAddresses(base, kUnit, false);
      UnchargeCard(context.card, kUnit);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->card = context.card;
    block->dirty = false;
    PublishRange(*block);
    AttachRange(context, *block);
    address = TakeSmall(memory->buckets, size);
  }
  *pointer = address;
  return CUDA_SUCCESS;
}

// Takes a whole range off its context and gives everything back. MemoryLock held. Uncharges
// `*bytes` afterwards, outside.
void EndRange(Range& range) {
  WithdrawRange(range);
  if (range.context) DetachRange(range);
  if (!range.shared && (range.dirty || UntrackedWrites())) ClearBytes(range.base, range.bytes);
  ForgetExport(range);
  if (range.kind == RangeKind::kManaged) ForgetManaged(range);
  GiveAddresses(range.base, range.bytes, range.shared);
  range.shared = false;
}

void EndBlock(Context& context, Block& block) {
  EndRange(block);
  DropBlock(context.memory->buckets, block);
}

}  // namespace

void AttachRange(Context& context, Range& range) {
  range.context = &context;
  range.previous = nullptr;
  range.next = context.memory->first;
  if (range.next) range.next->previous = &range;
  context.memory->first = &range;
}

void DetachRange(Range& range) {
  (range.previous ? range.previous->next : range.context->memory->first) = range.next;
  if (range.next) range.next->previous = range.previous;
  range.context = nullptr;
}

void EndImported(Range& range) {
  EndRange(range);
  delete &range;
}

void NoteUntrackedWrites() { untracked_writes.store(true, std::memory_order_relaxed); }
bool UntrackedWrites() { return untracked_writes.load(std::memory_order_relaxed); }

CUresult AllocateDevice(Context& context, std::uint64_t bytes, CUdeviceptr* pointer) {
  return bytes <= kSmallLimit ? AllocateSmall(context, bytes, pointer)
                              : AllocateLarge(context, RangeKind::kLarge, bytes, false, pointer);
}

CUresult FreeDevice(CUdeviceptr pointer) {
  if (IsGraphAllocation(pointer)) return ReleaseAllocation(pointer);
  MemoryLock lock;
  Range* range = FindRange(pointer);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  switch (range->kind) {
    case RangeKind::kBlock: {
      Context& context = *range->context;
      auto& block = static_cast<Block&>(*range);
      if (UntrackedWrites())
        if (const Piece piece = FindPiece(block, pointer); piece.size) *piece.dirty = 1;
      bool empty = false;
      if (!FreeSmall(context.memory->buckets, block, pointer, &empty))
        return CUDA_ERROR_INVALID_VALUE;
      if (empty) {
        block.dirty = false;  // each piece was cleared when it was freed
        EndBlock(context, block);
        UnchargeCard(context.card, kUnit);
      }
      return CUDA_SUCCESS;
    }
    case RangeKind::kLarge:
    case RangeKind::kManaged: {
      if (range->base != pointer) return CUDA_ERROR_INVALID_VALUE;
      const std::uint64_t bytes = range->bytes;
      const int card = range->card;
      EndRange(*range);
      delete range;
      UnchargeCard(card, bytes);
      return CUDA_SUCCESS;
    }
    case RangeKind::kMapped:
    case RangeKind::kPoolImport:
      if (range->base + range->offset != pointer) return CUDA_ERROR_INVALID_VALUE;
      EndImported(*range);
      return CUDA_SUCCESS;
    case RangeKind::kPoolChunk:
      return FreePoolPointer(*range, pointer);
    case RangeKind::kReservation:
    case RangeKind::kImported:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

bool FindPointerLocked(std::uint64_t address, PointerInfo* info) {
  Range* range = FindRange(address);
  if (!range) return FindHostPointer(address, info);
  *info = {};
  info->range = range;
  info->card = range->card;
  info->context = range->context;
  info->base = range->base;
  info->size = range->size;
  info->id = range->id;
  switch (range->kind) {
    case RangeKind::kBlock: {
      const Piece piece = FindPiece(static_cast<Block&>(*range), address);
      if (address - piece.base >= piece.size) return false;
      info->base = piece.base;
      info->size = piece.size;
      info->id = piece.id;
      info->dirty = piece.dirty;
      return true;
    }
    case RangeKind::kManaged:
      info->managed = true;
      [[fallthrough]];
    case RangeKind::kLarge:
    case RangeKind::kImported:
    case RangeKind::kPoolImport:
    case RangeKind::kMapped:
      info->base += range->offset;
      return address - info->base < range->size;
    case RangeKind::kPoolChunk:
      return FindPoolPointer(*range, address, info);
    case RangeKind::kReservation:
      return FindMapping(*range, address, info);
  }
  return false;
}

bool FindPointer(std::uint64_t address, PointerInfo* info) {
  MemoryLock lock;
  return FindPointerLocked(address, info);
}

void NoteWritten(std::uint64_t address, std::uint64_t bytes) {
  MemoryLock lock;
  PointerInfo info;
  if (bytes == 0 || !FindPointerLocked(address, &info) || !info.range) return;
  info.range->dirty = true;
  if (info.dirty) *info.dirty = 1;
}

void EndMemoryOf(Context& context) {
  EndArraysOf(context);
  EndTexturesOf(context);
  EndExternalMemoryOf(context);
  EndPoolsOf(context);
  EndHostMemoryOf(context);
  std::uint64_t bytes = 0;
  {
    MemoryLock lock;
    while (context.memory && context.memory->first) {
      Range& range = *context.memory->first;
      if (range.kind == RangeKind::kBlock) {
        auto& block = static_cast<Block&>(range);
        block.dirty = true;
        bytes += range.bytes;
        EndBlock(context, block);
        continue;
      }
      if (range.kind == RangeKind::kLarge || range.kind == RangeKind::kManaged)
        bytes += range.bytes;
      EndRange(range);
      delete &range;
    }
    delete context.memory;
    context.memory = nullptr;
  }
  if (bytes) UnchargeCard(context.card, bytes);
}

}  // namespace tessera::sim

using namespace tessera::sim;

namespace {

CUresult Narrow(std::size_t wide, unsigned* narrow) {
  if (narrow) *narrow = static_cast<unsigned>(std::min<std::size_t>(wide, 0xFFFFFFFF));
  return CUDA_SUCCESS;
}

CUresult AllocatePitch(CUdeviceptr* pointer, std::size_t* pitch, std::size_t width,
                       std::size_t height, unsigned element, bool low) {
  if (!pointer || !pitch || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(ForbiddenInCapture());
  const std::size_t row = RoundUp(width, kPitchAlignment);
  std::size_t bytes = 0;
  if (row < width || __builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  SIM_TRY(low ? AllocateLarge(*context, RangeKind::kLarge, bytes, true, pointer)
              : AllocateDevice(*context, bytes, pointer));
  *pitch = row;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuMemAlloc_v2)(CUdeviceptr* pointer, std::size_t bytes) {
  if (!pointer || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(ForbiddenInCapture());
  return AllocateDevice(*context, bytes, pointer);
}

SIM_API(cuMemAlloc)(CUdeviceptr_v1* pointer, unsigned bytes) {
  if (!pointer || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(ForbiddenInCapture());
  CUdeviceptr wide = 0;
  SIM_TRY(AllocateLarge(*context, RangeKind::kLarge, bytes, true, &wide));
  *pointer = static_cast<CUdeviceptr_v1>(wide);
  return CUDA_SUCCESS;
}

SIM_API(cuMemAllocPitch_v2)(CUdeviceptr* pointer, std::size_t* pitch, std::size_t width,
                            std::size_t height, unsigned element) {
  return AllocatePitch(pointer, pitch, width, height, element, false);
}

SIM_API(cuMemAllocPitch)(CUdeviceptr_v1* pointer, unsigned* pitch, unsigned width, unsigned height,
                         unsigned element) {
  if (!pointer || !pitch) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr wide = 0;
  std::size_t row = 0;
  SIM_TRY(AllocatePitch(&wide, &row, width, height, element, true));
  *pointer = static_cast<CUdeviceptr_v1>(wide);
  return Narrow(row, pitch);
}

SIM_API(cuMemAllocManaged)(CUdeviceptr* pointer, std::size_t bytes, unsigned flags) {
  if (!pointer || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(ForbiddenInCapture());
  SIM_TRY(AllocateLarge(*context, RangeKind::kManaged, bytes, false, pointer));
  NoteWritten(*pointer, bytes);  // the host writes there directly
  return CUDA_SUCCESS;
}

// cuMemFree waits for the work that may use the memory. Freeing 0 is allowed.
SIM_API(cuMemFree_v2)(CUdeviceptr pointer) {
  if (pointer == 0) return CUDA_SUCCESS;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  SIM_TRY(ForbiddenInCapture());
  SIM_TRY(SynchronizeContext(*context));
  return FreeDevice(pointer);
}
SIM_API(cuMemFree)(CUdeviceptr_v1 pointer) { return impl_cuMemFree_v2(pointer); }

SIM_API(cuMemGetInfo_v2)(std::size_t* free, std::size_t* total) {
  if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  *free = FreeBytes(context->card);
  *total = context->device->spec->memory_bytes;
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetInfo)(unsigned* free, unsigned* total) {
  if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
  std::size_t wide_free = 0, wide_total = 0;
  SIM_TRY(impl_cuMemGetInfo_v2(&wide_free, &wide_total));
  Narrow(wide_free, free);
  return Narrow(wide_total, total);
}

SIM_API(cuMemGetAddressRange_v2)(CUdeviceptr* base, std::size_t* size, CUdeviceptr pointer) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  PointerInfo info;
  if (!FindPointer(pointer, &info)) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = info.base;
  if (size) *size = info.size;
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetAddressRange)(CUdeviceptr_v1* base, unsigned* size, CUdeviceptr_v1 pointer) {
  CUdeviceptr wide = 0;
  std::size_t bytes = 0;
  SIM_TRY(impl_cuMemGetAddressRange_v2(&wide, &bytes, pointer));
  if (base) *base = static_cast<CUdeviceptr_v1>(wide);
  return Narrow(bytes, size);
}
