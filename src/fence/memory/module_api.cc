// Code and globals of modules and libraries: no call says how large they are on the card. What the
// image says is charged before the driver takes anything, and put right by measurement afterwards.
#include "memory/image_size.h"
#include "memory/live.h"
#include "memory/own_usage.h"
#include "os/os.h"
#include "real.h"

namespace tessera::fence {
namespace {

Capability CapabilityOf(CUdevice device) {
  int major = 0, minor = 0;
  if (device < 0) device = 0;  // the runtime loads libraries before it has a context
  if (real::cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) !=
          CUDA_SUCCESS ||
      real::cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) !=
          CUDA_SUCCESS)
    return {};
  return {static_cast<std::uint32_t>(major), static_cast<std::uint32_t>(minor)};
}

std::uint64_t FileNeed(const char* path, CUdevice device) {
  const int file = path == nullptr ? -1 : os::Open(path, os::Access::kRead);
  if (file < 0) return 0;
  std::uint64_t need = 0;
  if (const long bytes = os::FileBytes(file); bytes > 0) {
    const auto size = static_cast<std::size_t>(bytes);
    if (void* map = os::MapShared(file, size, os::Access::kRead); map != nullptr) {
      need = ImageBytes(map, size, CapabilityOf(device));
      os::Unmap(map, size);
    }
  }
  os::Close(file);
  return need;
}

// A neighbour's doing, if a load seems to differ by more from what the image says.
std::uint64_t MostOff(std::uint64_t need) { return need + (std::uint64_t{64} << 20); }

// Code and variables may lie in blocks that are there.
constexpr std::uint64_t kSharedBlocks = 2 * kBlockBytes;

// While floating memory is live, what code was charged beyond its image cannot be told apart from
// it when the code goes: it is remembered.
void AdoptCorrection(std::uint64_t key, int card, std::int64_t more) {
  Allocation entry;
  if (more <= 0 || !AnyFloating(card) || !HandleTable().Take(key, &entry)) return;
  entry.size += static_cast<std::uint64_t>(more);
  HandleTable().PutBack(key, entry);
  ForgetCorrection(card, more);
}

// A card that the slice has not; every card is where the slice cannot be used.
bool OnForeignCard() { return Fenced() && CurrentPlace().card == kForeignCard; }

void RefundStale(const Allocation& stale, std::uint64_t bytes) {
  // A library that was never loaded into a context was never charged.
  if (bytes != 0 && stale.owner != 0) Refund(static_cast<int>(stale.card), stale.kind, bytes);
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

// Libraries are loaded into a context when something of them is first asked for. Until then their
// entry has no owner, and its size is what they will need.
void NoteLibrary(CUlibrary library, std::uint64_t need) {
  Allocation entry, stale;
  entry.kind = Kind::kContext;
  entry.size = need < kMaxAllocation ? need : kMaxAllocation;
  std::uint64_t opened = 0, stale_bytes = 0;
  HandleTable().Insert(reinterpret_cast<std::uint64_t>(library), entry, &opened, &stale,
                       &stale_bytes);
  RefundStale(stale, stale_bytes);
}

template <typename Call>
CUresult TouchLibrary(CUlibrary library, Call&& call) {
  const auto key = reinterpret_cast<std::uint64_t>(library);
  const Place place = CurrentPlace();
  if (place.card == kForeignCard) return Refuse(place.card, 0);
  Allocation entry;
  if (!HandleTable().Find(key, &entry)) return call();
  if (place.card < 0 || place.context == 0 || entry.owner == place.context) return call();
  NoteHiddenSmall(place.card);
  const std::uint64_t need = entry.owner == 0 ? entry.size : 0;
  Measurement measurement(place, MostOff(entry.size));
  Reservation reserved(place.card, Kind::kContext, need);
  // Not touched, so not loaded: a program may try again when there is room.
  if (!reserved.granted()) return Refuse(place.card, need);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) return result;
  // In further contexts the measurement alone charges it.
  if (entry.owner == 0 && HandleTable().Take(key, &entry)) {
    if (entry.owner == 0) {
      entry.owner = place.context;
      entry.card = static_cast<std::uint32_t>(place.card);
      reserved.Keep(need);
      NoteDoubt(place.card, kSharedBlocks);
    }
    HandleTable().PutBack(key, entry);
    AdoptCorrection(key, place.card, measurement.Finish());
  }
  return result;
}

template <typename Handle>
CUresult UnloadCode(Handle handle, CUresult (*unload)(Handle)) {
  Allocation entry;
  const auto key = reinterpret_cast<std::uint64_t>(handle);
  const bool known = HandleTable().Take(key, &entry);
  Place place = CurrentPlace();
  const bool charged = known && entry.owner != 0;
  if (charged && place.card != static_cast<int>(entry.card)) place = {};
  Measurement measurement(place, MostOff(entry.size));
  if (charged) BeforeGivingBack(static_cast<int>(entry.card));
  const CUresult result = unload(handle);
  if (result != CUDA_SUCCESS) {
    if (known) HandleTable().PutBack(key, entry);
    return result;
  }
  if (charged) {
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
  return UnloadCode(module, real::cuModuleUnload);
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options,
                                   void** values, unsigned int count,
                                   CUlibraryOption* library_options, void** library_values,
                                   unsigned int library_count) {
  if (OnForeignCard()) return Refuse(kForeignCard, 0);
  const CUresult result = real::cuLibraryLoadData(library, code, options, values, count,
                                                  library_options, library_values, library_count);
  if (result == CUDA_SUCCESS && Fenced())
    NoteLibrary(*library, ImageBytes(code, CapabilityOf(CurrentPlace().device)));
  return result;
}
CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* name, CUjit_option* options,
                                       void** values, unsigned int count,
                                       CUlibraryOption* library_options, void** library_values,
                                       unsigned int library_count) {
  if (OnForeignCard()) return Refuse(kForeignCard, 0);
  const CUresult result = real::cuLibraryLoadFromFile(
      library, name, options, values, count, library_options, library_values, library_count);
  if (result == CUDA_SUCCESS && Fenced())
    NoteLibrary(*library, FileNeed(name, CurrentPlace().device));
  return result;
}
CUresult CUDAAPI cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  if (!Fenced()) return real::cuLibraryGetModule(module, library);
  return TouchLibrary(library, [&] { return real::cuLibraryGetModule(module, library); });
}
CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* pointer, size_t* bytes, CUlibrary library,
                                    const char* name) {
  if (!Fenced()) return real::cuLibraryGetGlobal(pointer, bytes, library, name);
  return TouchLibrary(library,
                      [&] { return real::cuLibraryGetGlobal(pointer, bytes, library, name); });
}
CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr* pointer, size_t* bytes, CUlibrary library,
                                     const char* name) {
  if (!Fenced()) return real::cuLibraryGetManaged(pointer, bytes, library, name);
  return TouchLibrary(library,
                      [&] { return real::cuLibraryGetManaged(pointer, bytes, library, name); });
}
// The first launch of a kernel loads its library into the context, in a call that costs nothing
// here. So it is loaded when the kernel is looked up, where it can be refused.
CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  if (OnForeignCard()) return Refuse(kForeignCard, 0);
  const CUresult result = real::cuLibraryGetKernel(kernel, library, name);
  if (result != CUDA_SUCCESS || !Fenced()) return result;
  CUmodule module = nullptr;
  const CUresult touched =
      TouchLibrary(library, [&] { return real::cuLibraryGetModule(&module, library); });
  return touched == CUDA_ERROR_OUT_OF_MEMORY ? touched : result;
}
CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  CUlibrary library = nullptr;
  if (OnForeignCard()) return Refuse(kForeignCard, 0);
  if (!Fenced() || real::cuKernelGetLibrary(&library, kernel) != CUDA_SUCCESS) {
    return real::cuKernelGetFunction(function, kernel);
  }
  return TouchLibrary(library, [&] { return real::cuKernelGetFunction(function, kernel); });
}
CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
  if (!Fenced()) return real::cuLibraryUnload(library);
  return UnloadCode(library, real::cuLibraryUnload);
}

}  // extern "C"
