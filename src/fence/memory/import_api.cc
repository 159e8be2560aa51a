// External memory (Vulkan, Direct3D, dma-buf): no other fence has charged it, so the importer is,
// until it destroys the object.
#include "memory/live.h"
#include "memory/own_usage.h"
#include "memory/private_copy.h"
#include "memory/underway.h"
#include "real.h"

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuImportExternalMemory(CUexternalMemory* out,
                                        const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* description) {
  if (!Fenced() || out == nullptr || description == nullptr)
    return real::cuImportExternalMemory(out, description);
  const PrivateCopy wanted(description);
  const Place place = CurrentPlace();
  if (place.card == kUnknownCard) return real::cuImportExternalMemory(out, wanted.get());
  const std::uint64_t bytes = wanted->size;
  if (place.card == kForeignCard || bytes > kMaxAllocation) return Refuse(place.card, bytes);
  BeforeFloating(place.card, 0);
  const Underway underway;
  Reservation reserved(place.card, Kind::kImported, bytes);
  if (!reserved.granted()) return Refuse(place.card, bytes);
  CUexternalMemory made = nullptr;
  const CUresult result = real::cuImportExternalMemory(&made, wanted.get());
  if (result != CUDA_SUCCESS) return result;
  Allocation entry, stale;
  entry.size = bytes;
  entry.owner = place.context;
  entry.card = static_cast<std::uint32_t>(place.card);
  entry.kind = Kind::kImported;
  std::uint64_t opened = 0, stale_bytes = 0;
  if (!HandleTable().Insert(reinterpret_cast<std::uint64_t>(made), entry, &opened, &stale,
                            &stale_bytes)) {
    real::cuDestroyExternalMemory(made);
    return Refuse(place.card, bytes);
  }
  if (stale_bytes != 0) Refund(static_cast<int>(stale.card), stale.kind, stale_bytes);
  reserved.Keep(bytes);
  AfterFloating(place.card, 1);
  *out = made;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDestroyExternalMemory(CUexternalMemory memory) {
  Allocation entry;
  const auto key = reinterpret_cast<std::uint64_t>(memory);
  if (!Fenced()) return real::cuDestroyExternalMemory(memory);
  const Underway underway;
  if (!HandleTable().Take(key, &entry)) return real::cuDestroyExternalMemory(memory);
  BeforeFloating(static_cast<int>(entry.card), 1);
  const CUresult result = real::cuDestroyExternalMemory(memory);
  if (result == CUDA_SUCCESS) {
    Refund(static_cast<int>(entry.card), entry.kind, entry.size);
    AfterFloating(static_cast<int>(entry.card), 1);
  } else {
    HandleTable().PutBack(key, entry);
  }
  return result;
}

}  // extern "C"
