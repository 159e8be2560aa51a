// Code and globals of modules and libraries: no call says how large they are on the card, so they
// are measured.
#include "memory/live.h"
#include "memory/own_usage.h"
#include "real.h"

namespace tessera::fence {
namespace {

// More than one image with its globals takes; a larger difference of free memory is a neighbour's
// doing.
constexpr std::uint64_t kMostOfOneImage = std::uint64_t{8} << 30;

template <typename Handle, typename Load, typename Unload>
CUresult LoadCode(Handle* out, Load&& load, Unload&& unload) {
  const Place place = CurrentPlace();
  if (place.card < 0 || place.context == 0) return load(out);
  const Growth growth(place);
  Handle made = nullptr;
  const CUresult result = load(&made);
  if (result != CUDA_SUCCESS) return result;
  if (!SettleByDriver(place.card, place.context)) {
    const std::uint64_t taken = growth.Measure(kMostOfOneImage);
    if (taken != 0) {
      Reservation reserved(place.card, Kind::kContext, taken);
      Allocation entry, stale;
      entry.size = taken;
      entry.owner = place.context;
      entry.card = static_cast<std::uint32_t>(place.card);
      entry.kind = Kind::kContext;
      std::uint64_t opened = 0, stale_bytes = 0;
      if (!reserved.granted() || !HandleTable().Insert(reinterpret_cast<std::uint64_t>(made), entry,
                                                       &opened, &stale, &stale_bytes)) {
        unload(made);
        return Refuse(place.card, taken);
      }
      if (stale_bytes != 0) Refund(static_cast<int>(stale.card), stale.kind, stale_bytes);
      reserved.Keep(taken);
    }
  }
  *out = made;
  return CUDA_SUCCESS;
}

// Libraries are loaded into a context when something of them is first asked for. Until then their
// entry has no owner.
void NoteLibrary(CUlibrary library) {
  Allocation entry, stale;
  entry.kind = Kind::kContext;
  std::uint64_t opened = 0, stale_bytes = 0;
  HandleTable().Insert(reinterpret_cast<std::uint64_t>(library), entry, &opened, &stale,
                       &stale_bytes);
  if (stale_bytes != 0) Refund(static_cast<int>(stale.card), stale.kind, stale_bytes);
}

template <typename Call>
CUresult TouchLibrary(CUlibrary library, Call&& call) {
  const auto key = reinterpret_cast<std::uint64_t>(library);
  Allocation entry;
  if (!HandleTable().Find(key, &entry) || entry.owner != 0) return call();
  const Place place = CurrentPlace();
  if (place.card < 0 || place.context == 0) return call();
  const Growth growth(place);
  const CUresult result = call();
  if (result != CUDA_SUCCESS || !HandleTable().Take(key, &entry)) return result;
  const bool settled = SettleByDriver(place.card, place.context);
  entry.owner = place.context;
  entry.card = static_cast<std::uint32_t>(place.card);
  entry.size = settled ? 0 : growth.Measure(kMostOfOneImage);
  const bool fits = Reserve(place.card, Kind::kContext, entry.size);
  // The driver has it now, and only unloading the library gives it back: it is charged even where
  // it does not fit.
  if (!fits) ChargeTaken(place.card, Kind::kContext, entry.size);
  HandleTable().PutBack(key, entry);
  return fits ? result : Refuse(place.card, entry.size);
}

template <typename Handle>
CUresult UnloadCode(Handle handle, CUresult (*unload)(Handle)) {
  Allocation entry;
  const auto key = reinterpret_cast<std::uint64_t>(handle);
  const bool known = HandleTable().Take(key, &entry);
  const CUresult result = unload(handle);
  if (result != CUDA_SUCCESS) {
    if (known) HandleTable().PutBack(key, entry);
    return result;
  }
  if (known) Refund(static_cast<int>(entry.card), entry.kind, entry.size);
  if (const Place place = CurrentPlace(); place.card >= 0)
    SettleByDriver(place.card, place.context);
  return result;
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* name) {
  if (!Fenced() || module == nullptr) return real::cuModuleLoad(module, name);
  return LoadCode(
      module, [&](CUmodule* made) { return real::cuModuleLoad(made, name); }, real::cuModuleUnload);
}
CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  if (!Fenced() || module == nullptr) return real::cuModuleLoadData(module, image);
  return LoadCode(
      module, [&](CUmodule* made) { return real::cuModuleLoadData(made, image); },
      real::cuModuleUnload);
}
CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count,
                                    CUjit_option* options, void** values) {
  if (!Fenced() || module == nullptr)
    return real::cuModuleLoadDataEx(module, image, count, options, values);
  return LoadCode(
      module,
      [&](CUmodule* made) { return real::cuModuleLoadDataEx(made, image, count, options, values); },
      real::cuModuleUnload);
}
CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  if (!Fenced() || module == nullptr) return real::cuModuleLoadFatBinary(module, image);
  return LoadCode(
      module, [&](CUmodule* made) { return real::cuModuleLoadFatBinary(made, image); },
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
  const auto load = [&](CUlibrary* made) {
    return real::cuLibraryLoadData(made, code, options, values, count, library_options,
                                   library_values, library_count);
  };
  const CUresult result = load(library);
  if (result == CUDA_SUCCESS && Fenced()) NoteLibrary(*library);
  return result;
}
CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* name, CUjit_option* options,
                                       void** values, unsigned int count,
                                       CUlibraryOption* library_options, void** library_values,
                                       unsigned int library_count) {
  const auto load = [&](CUlibrary* made) {
    return real::cuLibraryLoadFromFile(made, name, options, values, count, library_options,
                                       library_values, library_count);
  };
  const CUresult result = load(library);
  if (result == CUDA_SUCCESS && Fenced()) NoteLibrary(*library);
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
CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  CUlibrary library = nullptr;
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
