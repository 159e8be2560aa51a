// Code and globals of modules: no call says how large they are on the card. What the image says is
// charged before the driver takes anything, and put right by measurement afterwards.
#include "memory/code.h"
#include "real.h"

namespace tessera::fence {
namespace {

void RefundStale(const Allocation& stale, std::uint64_t bytes) {
  if (bytes != 0) Refund(static_cast<int>(stale.card), stale.kind, bytes);
}

template <typename Handle, typename Load, typename Unload>
CUresult LoadCode(Handle* out, std::uint64_t need, const Place& place, Load&& load,
                  Unload&& unload) {
  if (place.card == kForeignCard) return Refuse(place.card, need);
  if (place.card < 0 || place.context == 0) return load(out);
  NoteHiddenSmall(place.card);
  Handle made = nullptr;
  bool fits = true;
  {
    Measurement measurement(place, MostOff(need));
    Reservation reserved(place.card, Kind::kContext, need);
    if (!reserved.granted()) return Refuse(place.card, need);
    const CUresult result = load(&made);
    if (result != CUDA_SUCCESS) return result;
    Allocation entry, stale;
    entry.size = need;
    entry.owner = place.context;
    entry.card = static_cast<std::uint32_t>(place.card);
    entry.kind = Kind::kContext;
    std::uint64_t opened = 0, stale_bytes = 0;
    fits = HandleTable().Insert(reinterpret_cast<std::uint64_t>(made), entry, &opened, &stale,
                                &stale_bytes);
    if (fits) {
      RefundStale(stale, stale_bytes);
      reserved.Keep(need);
      NoteDoubt(place.card, kSharedBlocks);
      const std::int64_t more = measurement.Finish();
      AdoptCorrection(reinterpret_cast<std::uint64_t>(made), place.card, more);
      fits = more <= 0 || !OverLimit(place.card);
    }
  }
  if (!fits) {
    Measurement measurement(place, MostOff(need));
    Allocation entry;
    unload(made);
    if (HandleTable().Take(reinterpret_cast<std::uint64_t>(made), &entry))
      Refund(place.card, Kind::kContext, entry.size);
    measurement.Finish();
    return Refuse(place.card, need);
  }
  *out = made;
  return CUDA_SUCCESS;
}

template <typename Load, typename Unload>
CUresult LoadImage(CUmodule* out, const void* image, Load&& load, Unload&& unload) {
  const Place place = CurrentPlace();
  const std::uint64_t need = place.card < 0 ? 0 : ImageBytes(image, CapabilityOf(place.device));
  return LoadCode(out, need, place, load, unload);
}

CUresult UnloadModule(CUmodule module) {
  Allocation entry;
  const auto key = reinterpret_cast<std::uint64_t>(module);
  const bool known = HandleTable().Take(key, &entry);
  Place place = CurrentPlace();
  if (known && place.card != static_cast<int>(entry.card)) place = {};
  Measurement measurement(place, MostOff(entry.size));
  if (known) BeforeGivingBack(static_cast<int>(entry.card));
  const CUresult result = real::cuModuleUnload(module);
  if (result != CUDA_SUCCESS) {
    if (known) HandleTable().PutBack(key, entry);
    return result;
  }
  if (known) {
    Refund(static_cast<int>(entry.card), entry.kind, entry.size);
    NoteDoubt(static_cast<int>(entry.card), kSharedBlocks);
    if (place.card < 0) MarkUnsettled(static_cast<int>(entry.card));
  }
  return result;
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* name) {
  if (!Fenced() || module == nullptr) return real::cuModuleLoad(module, name);
  const Place place = CurrentPlace();
  return LoadCode(
      module, FileNeed(name, place.device), place,
      [&](CUmodule* made) { return real::cuModuleLoad(made, name); }, real::cuModuleUnload);
}
CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  if (!Fenced() || module == nullptr) return real::cuModuleLoadData(module, image);
  return LoadImage(
      module, image, [&](CUmodule* made) { return real::cuModuleLoadData(made, image); },
      real::cuModuleUnload);
}
CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count,
                                    CUjit_option* options, void** values) {
  if (!Fenced() || module == nullptr)
    return real::cuModuleLoadDataEx(module, image, count, options, values);
  return LoadImage(
      module, image,
      [&](CUmodule* made) { return real::cuModuleLoadDataEx(made, image, count, options, values); },
      real::cuModuleUnload);
}
CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  if (!Fenced() || module == nullptr) return real::cuModuleLoadFatBinary(module, image);
  return LoadImage(
      module, image, [&](CUmodule* made) { return real::cuModuleLoadFatBinary(made, image); },
      real::cuModuleUnload);
}
CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  if (!Fenced()) return real::cuModuleUnload(module);
  return UnloadModule(module);
}

}  // extern "C"
