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
struct LibraryObject {
  CUmodule module = nullptr;
};
CUresult LoadLibrary(CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                     CUlibraryOption*, void**, unsigned) {
  *library = reinterpret_cast<CUlibrary>(new LibraryObject());
  return CUDA_SUCCESS;
}
CUresult LibraryModule(CUmodule* module, CUlibrary handle) {
  auto* library = reinterpret_cast<LibraryObject*>(handle);
  if (library->module == nullptr) LoadModule(&library->module, nullptr);
  *module = library->module;
  return CUDA_SUCCESS;
}
CUresult UnloadLibrary(CUlibrary handle) {
  auto* library = reinterpret_cast<LibraryObject*>(handle);
  if (library->module != nullptr) UnloadModule(library->module);
  delete library;
  return CUDA_SUCCESS;
}
CUresult LibraryKernel(CUkernel* kernel, CUlibrary library, const char*) {
  *kernel = reinterpret_cast<CUkernel>(library);
  return CUDA_SUCCESS;
}

}  // namespace

void PlaceCode() {
  real::cuModuleLoadData = LoadModule;
  real::cuModuleUnload = UnloadModule;
  real::cuLibraryLoadData = LoadLibrary;
  real::cuLibraryGetModule = LibraryModule;
  real::cuLibraryUnload = UnloadLibrary;
  real::cuLibraryGetKernel = LibraryKernel;
}

}  // namespace tessera::fence::testing::fake
