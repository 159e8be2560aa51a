// cuGetProcAddress: the driver answers first, with its own rules for versions, flags and status;
// then its pointer is replaced by the wrapper of the function that this pointer is.
#include "entry/driver.h"
#include "entry/table.h"
#include "real.h"

namespace tessera::fence {
namespace {

// The driver's answer for `version`, nullptr if it has none.
void* AskDriver(const char* symbol, int version, cuuint64_t flags) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  if (real::cuGetProcAddress_v2(symbol, &function, version, flags, &status) != CUDA_SUCCESS)
    return nullptr;
  return function;
}

void* WrapperFor(const char* symbol, void* function, int version, cuuint64_t flags) {
  const EntryIndex name = FindEntry(symbol);
  if (name == kNoEntry || EntryLibrary(name) != Library::kCuda) return function;
  bool any_hook = false;
  for (EntryIndex variant : VariantsOf(name)) {
    any_hook = any_hook || IsHooked(variant);
    if (DriverFunction(variant) != function) continue;
    return IsHooked(variant) ? WrapperOf(variant) : function;
  }
  if (!any_hook) return function;
  // A pointer that no exported symbol has: the variant follows from the version. Beyond the newest
  // version that the tables know, only if the driver gives the same function for that one: a newer
  // ABI must not be mixed with an older.
  if (version > kNewestVersion && AskDriver(symbol, kNewestVersion, flags) != function)
    return function;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const EntryIndex variant =
      VariantFor(name, version < kNewestVersion ? version : kNewestVersion, per_thread);
  if (variant == kNoEntry || !IsHooked(variant)) return function;
  if (DriverFunction(variant) == nullptr) AdoptFunction(variant, function);
  return WrapperOf(variant);
}

}  // namespace
}  // namespace tessera::fence

extern "C" {

CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                                  cuuint64_t flags) {
  namespace fence = tessera::fence;
  const CUresult result = fence::real::cuGetProcAddress(symbol, pfn, cudaVersion, flags);
  if (result == CUDA_SUCCESS && symbol != nullptr && pfn != nullptr && *pfn != nullptr) {
    *pfn = fence::WrapperFor(symbol, *pfn, cudaVersion, flags);
  }
  return result;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion,
                                     cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* symbolStatus) {
  namespace fence = tessera::fence;
  const CUresult result =
      fence::real::cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);
  if (result == CUDA_SUCCESS && symbol != nullptr && pfn != nullptr && *pfn != nullptr) {
    *pfn = fence::WrapperFor(symbol, *pfn, cudaVersion, flags);
  }
  return result;
}

}  // extern "C"
