// Libraries: the driver loads their code into a context when something of them is first asked for
// or launched there. Each call that may do so loads the library first, charged as a module is.
#include "compute/gate.h"
#include "memory/code.h"
#include "memory/libraries.h"
#include "memory/primary.h"
#include "os/os.h"

namespace tessera::fence {
namespace {

// A card that the slice has not; every card is where the slice cannot be used.
bool OnForeignCard() { return Fenced() && CurrentPlace().card == kForeignCard; }

// The context of a call, made current for what has no other way to name it.
class InContext {
 public:
  explicit InContext(CUcontext context) {
    pushed_ = context != nullptr && real::cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
  }
  ~InContext() {
    CUcontext popped = nullptr;
    if (pushed_) real::cuCtxPopCurrent_v2(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  bool pushed_ = false;
};

// Anything but success: it does not fit, and the call must not go on. What else may be wrong the
// call itself will say.
CUresult Load(CUlibrary library, CUcontext context) {
  const Place place = context != nullptr ? PlaceOf(context) : CurrentPlace();
  if (place.card == kForeignCard) return Refuse(place.card, 0);
  if (place.card < 0 || place.context == 0) return CUDA_SUCCESS;
  const LibraryAnswer known = FindLibrary(library);
  if (!known.told) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!known.known || IsLoadedIn(library, place.context)) return CUDA_SUCCESS;
  const std::uint64_t need = known.need;
  const InContext in_context(context);
  NoteHiddenSmall(place.card);
  Measurement measurement(place, MostOff(need));
  Reservation reserved(place.card, Kind::kContext, need);
  // Not touched, so not loaded: a program may try again when there is room.
  if (!reserved.granted()) return Refuse(place.card, need);
  CUmodule module = nullptr;
  if (const CUresult result = real::cuLibraryGetModule(&module, library); result != CUDA_SUCCESS)
    return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_SUCCESS;
  const Loaded noted = NoteLoaded(library, place, need);
  if (noted == Loaded::kByAnother) return CUDA_SUCCESS;
  reserved.Keep(need);
  NoteDoubt(place.card, kSharedBlocks);
  if (noted == Loaded::kNotRemembered) {  // until the context ends
    AddContextBytes(place.context, need);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  AdoptCorrection(LoadedKey(library, place.context), place.card, measurement.Finish());
  return CUDA_SUCCESS;
}

template <typename Call>
CUresult AfterLoading(CUlibrary library, Call&& call) {
  if (!Fenced()) return call();
  const CUresult loaded = Load(library, nullptr);
  return loaded != CUDA_SUCCESS ? loaded : call();
}

void RefundParts(const TakenLibrary& taken, int measured) {
  for (unsigned i = 0; i < taken.count; ++i) {
    const Allocation& charge = taken.parts[i].charge;
    const int card = static_cast<int>(charge.card);
    Refund(card, charge.kind, charge.size);
    NoteDoubt(card, kSharedBlocks);
    if (card != measured) MarkUnsettled(card);
  }
}

CUresult UnloadLibrary(CUlibrary library) {
  TakenLibrary taken = TakeLibrary(library);
  Place place = CurrentPlace();
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < taken.count; ++i) bytes += taken.parts[i].charge.size;
  if (taken.count != 0 && static_cast<int>(taken.parts[0].charge.card) != place.card) place = {};
  Measurement measurement(place, MostOff(bytes));
  for (unsigned i = 0; i < taken.count; ++i)
    BeforeGivingBack(static_cast<int>(taken.parts[i].charge.card));
  const CUresult result = MayEndPrimary(0, [&] { return real::cuLibraryUnload(library); });
  if (result != CUDA_SUCCESS) {
    PutBackLibrary(library, taken);
    return result;
  }
  RefundParts(taken, place.card);
  while (taken.count == kMostParts) {
    taken = TakeLibrary(library, &taken);
    RefundParts(taken, place.card);
  }
  return result;
}

// A library that has the handle of one whose end was not seen.
bool NoteNew(CUlibrary library, std::uint64_t need) {
  TakenLibrary former = TakeLibrary(library);
  RefundParts(former, kUnknownCard);
  while (former.count == kMostParts) {
    former = TakeLibrary(library, &former);
    RefundParts(former, kUnknownCard);
  }
  return NoteLibrary(library, need);
}

// What the driver gives is noted before the program, another thread of it included, can see it.
template <typename Ask, typename Need>
CUresult Make(CUlibrary* out, Ask&& ask, Need&& need) {
  if (!Fenced() || out == nullptr) return ask(out);
  CUlibrary made = nullptr;
  const CUresult result = ask(&made);
  if (result != CUDA_SUCCESS) return result;
  if (!NoteNew(made, need())) {
    real::cuLibraryUnload(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = made;
  return CUDA_SUCCESS;
}

// The kernels may be launched from now on. Where there is a context, the library is loaded at once,
// in a call that programs expect to fail.
CUresult HandOut(CUlibrary library, const CUkernel* kernels, unsigned count) {
  const CUresult loaded = Load(library, nullptr);
  if (loaded != CUDA_SUCCESS) return loaded;
  return NoteKernels(library, kernels, count) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

CUresult LoadForKernel(CUfunction function, CUcontext context) {
  const LibraryAnswer of = LibraryOf(function);
  if (!of.told) return CUDA_ERROR_OUT_OF_MEMORY;
  return of.known ? Load(of.library, context) : CUDA_SUCCESS;
}

CUresult LoadForLaunch(CUfunction function, CUstream stream) {
  const LibraryAnswer of = LibraryOf(function);
  if (!of.told) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!of.known) return CUDA_SUCCESS;
  CUcontext context = nullptr;
  // The default streams, legacy and per thread, are those of the current context.
  if (reinterpret_cast<std::uint64_t>(stream) > 2 &&
      real::cuStreamGetCtx(stream, &context) != CUDA_SUCCESS)
    context = nullptr;
  return Load(of.library, context);
}

}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options,
                                   void** values, unsigned int count,
                                   CUlibraryOption* library_options, void** library_values,
                                   unsigned int library_count) {
  if (OnForeignCard()) return Refuse(kForeignCard, 0);
  return Make(
      library,
      [&](CUlibrary* made) {
        return real::cuLibraryLoadData(made, code, options, values, count, library_options,
                                       library_values, library_count);
      },
      [&] { return ImageBytes(code, CapabilityOf(CurrentPlace().device)); });
}
CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* name, CUjit_option* options,
                                       void** values, unsigned int count,
                                       CUlibraryOption* library_options, void** library_values,
                                       unsigned int library_count) {
  if (OnForeignCard()) return Refuse(kForeignCard, 0);
  return Make(
      library,
      [&](CUlibrary* made) {
        return real::cuLibraryLoadFromFile(made, name, options, values, count, library_options,
                                           library_values, library_count);
      },
      [&] { return FileNeed(name, CurrentPlace().device); });
}
CUresult CUDAAPI cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  return AfterLoading(library, [&] { return real::cuLibraryGetModule(module, library); });
}
CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* pointer, size_t* bytes, CUlibrary library,
                                    const char* name) {
  return AfterLoading(library,
                      [&] { return real::cuLibraryGetGlobal(pointer, bytes, library, name); });
}
// Without a context, as the runtime asks before it has one, the variables come into the primary
// context of the first device, which the library keeps until it is unloaded.
CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr* pointer, size_t* bytes, CUlibrary library,
                                     const char* name) {
  const auto ask = [&] { return real::cuLibraryGetManaged(pointer, bytes, library, name); };
  CUcontext current = nullptr;
  if (!Fenced() || (real::cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr))
    return AfterLoading(library, ask);
  if (CardOfDevice(0) == kUnknownCard) return ask();
  const PrimaryHeld primary(0);
  return primary.result() != CUDA_SUCCESS ? primary.result() : ask();
}
CUresult CUDAAPI cuLibraryGetUnifiedFunction(void** function, CUlibrary library,
                                             const char* symbol) {
  return AfterLoading(library,
                      [&] { return real::cuLibraryGetUnifiedFunction(function, library, symbol); });
}
CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  if (OnForeignCard()) return Refuse(kForeignCard, 0);
  if (!Fenced() || kernel == nullptr) return real::cuLibraryGetKernel(kernel, library, name);
  CUkernel found = nullptr;
  CUresult result = real::cuLibraryGetKernel(&found, library, name);
  if (result == CUDA_SUCCESS) result = HandOut(library, &found, 1);
  if (result == CUDA_SUCCESS) *kernel = found;
  return result;
}
CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count,
                                           CUlibrary library) {
  if (OnForeignCard()) return Refuse(kForeignCard, 0);
  unsigned have = 0;
  if (!Fenced() || kernels == nullptr || count == 0 ||
      real::cuLibraryGetKernelCount(&have, library) != CUDA_SUCCESS || have == 0)
    return real::cuLibraryEnumerateKernels(kernels, count, library);
  if (count > have) count = have;
  const std::size_t bytes = count * sizeof(CUkernel);
  auto* found = static_cast<CUkernel*>(os::MapPrivate(bytes));
  if (found == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = real::cuLibraryEnumerateKernels(found, count, library);
  if (result == CUDA_SUCCESS) result = HandOut(library, found, count);
  for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) kernels[i] = found[i];
  os::Unmap(found, bytes);
  return result;
}
CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  if (OnForeignCard()) return Refuse(kForeignCard, 0);
  CUlibrary library = nullptr;
  if (!Fenced() || real::cuKernelGetLibrary(&library, kernel) != CUDA_SUCCESS)
    return real::cuKernelGetFunction(function, kernel);
  return AfterLoading(library, [&] { return real::cuKernelGetFunction(function, kernel); });
}
CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
  if (!Fenced()) return real::cuLibraryUnload(library);
  return UnloadLibrary(library);
}

}  // extern "C"
