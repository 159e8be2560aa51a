// Modules and libraries.
#include "memory/testing/fake_state.h"

namespace tessera::fence::testing::fake {

namespace {

// A library loads when its module is asked for.
CUresult LoadModule(CUmodule* module, const void*) {
  Lock lock(D().mutex);
  D().bytes[t_current->card] += D().code_bytes;
  D().neighbours[0] += std::exchange(D().moves_in_load, 0);
  if (const auto [pointer, bytes] = std::exchange(D().pages_in_load, {}); pointer != 0)
    SetResident(pointer, bytes);
  ++D().modules;
  *module = reinterpret_cast<CUmodule>(new Array{t_current, D().code_bytes});
  return CUDA_SUCCESS;
}
CUresult UnloadModule(CUmodule module) {
  Lock lock(D().mutex);
  auto* code = reinterpret_cast<Array*>(module);
  D().bytes[code->context->card] -= code->bytes;
  --D().modules;
  delete code;
  return CUDA_SUCCESS;
}
CUresult LoadLibrary(CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                     CUlibraryOption*, void**, unsigned) {
  Lock lock(D().mutex);
  auto* made = new LibraryObject();
  D().libraries.insert(made);
  *library = reinterpret_cast<CUlibrary>(made);
  return CUDA_SUCCESS;
}
CUresult LibraryModule(CUmodule* module, CUlibrary handle) {
  Lock lock(D().mutex);
  if (t_current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUmodule& loaded = reinterpret_cast<LibraryObject*>(handle)->modules[t_current];
  if (loaded == nullptr) LoadModule(&loaded, nullptr);
  *module = loaded;
  return CUDA_SUCCESS;
}
// Without a context they live in the first primary one, which the library keeps.
CUresult LibraryManaged(CUdeviceptr*, std::size_t*, CUlibrary handle, const char*) {
  Lock lock(D().mutex);
  auto* library = reinterpret_cast<LibraryObject*>(handle);
  CUcontext context = nullptr;
  if (t_current != nullptr || std::exchange(library->keeps_primary, true)) return CUDA_SUCCESS;
  return real::cuDevicePrimaryCtxRetain(&context, 0);
}
CUresult UnloadLibrary(CUlibrary handle) {
  Lock lock(D().mutex);
  auto* library = reinterpret_cast<LibraryObject*>(handle);
  if (D().libraries.count(library) != 0 && library->keeps_primary)
    real::cuDevicePrimaryCtxRelease_v2(0);
  if (D().libraries.erase(library) == 0) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& [context, module] : library->modules) UnloadModule(module);
  delete library;
  return CUDA_SUCCESS;
}
CUresult LibraryKernel(CUkernel* kernel, CUlibrary library, const char*) {
  *kernel = reinterpret_cast<CUkernel>(reinterpret_cast<std::uint64_t>(library) + 1);
  return CUDA_SUCCESS;
}
CUresult KernelCount(unsigned* count, CUlibrary) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult Kernels(CUkernel* kernels, unsigned count, CUlibrary library) {
  return count == 0 ? CUDA_SUCCESS : LibraryKernel(kernels, library, nullptr);
}
CUresult LibraryOfKernel(CUlibrary* library, CUkernel kernel) {
  *library = reinterpret_cast<CUlibrary>(reinterpret_cast<std::uint64_t>(kernel) - 1);
  return CUDA_SUCCESS;
}
CUresult KernelFunction(CUfunction* function, CUkernel kernel) {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  LibraryOfKernel(&library, kernel);
  *function = reinterpret_cast<CUfunction>(kernel);
  return LibraryModule(&module, library);
}
// A launch of a kernel loads its library, as the real one does.
CUresult LaunchKernel(CUfunction kernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, CUstream, void**, void**) {
  Lock lock(D().mutex);
  if (D().libraries.count(
          reinterpret_cast<LibraryObject*>(reinterpret_cast<std::uint64_t>(kernel) - 1)) == 0)
    return CUDA_SUCCESS;  // a function of a module
  return KernelFunction(&kernel, reinterpret_cast<CUkernel>(kernel));
}

}  // namespace

void EndCodeOf(Context* context) {
  for (LibraryObject* library : D().libraries) {
    if (const auto found = library->modules.find(context); found != library->modules.end()) {
      UnloadModule(found->second);
      library->modules.erase(found);
    }
  }
}

void PlaceCode() {
  real::cuModuleLoadData = LoadModule;
  real::cuModuleUnload = UnloadModule;
  real::cuLibraryLoadData = LoadLibrary;
  real::cuLibraryGetModule = LibraryModule;
  real::cuLibraryUnload = UnloadLibrary;
  real::cuLibraryGetKernel = LibraryKernel;
  real::cuLibraryGetManaged = LibraryManaged;
  real::cuLibraryGetKernelCount = KernelCount;
  real::cuLibraryEnumerateKernels = Kernels;
  real::cuKernelGetLibrary = LibraryOfKernel;
  real::cuKernelGetFunction = KernelFunction;
  real::cuLaunchKernel = LaunchKernel;
}

}  // namespace tessera::fence::testing::fake
