#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/in_context.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/module.h"
#include "sim/cuda/work.h"

namespace tessera::sim {

CUresult ReadCodeFile(const char* path, std::vector<std::uint8_t>* bytes);

namespace {

std::uint32_t CapabilityOf(const Device& device) {
  return device.spec->cc_major * 10 + device.spec->cc_minor;
}

CUresult ImageFor(Library& library, const Device& device, std::shared_ptr<const CodeImage>* out) {
  const std::uint32_t capability = CapabilityOf(device);
  if (const auto found = library.images.find(capability); found != library.images.end()) {
    *out = found->second;
    return CUDA_SUCCESS;
  }
  const char* force = std::getenv("CUDA_FORCE_PTX_JIT");
  ImageResult chosen = ChooseImage(library.bytes, {capability / 10, capability % 10},
                                   force != nullptr && std::strcmp(force, "1") == 0);
  if (!chosen.ok) return ErrorOf(chosen.error);
  *out = std::make_shared<CodeImage>(std::move(chosen.image));
  library.images.emplace(capability, *out);
  return CUDA_SUCCESS;
}

// The device whose image answers for the library: that of the current context, else the first.
const Device* AnsweringDevice() {
  const Context* context = CurrentContextOrNull();
  return context != nullptr ? context->device : FindDevice(0);
}

CUresult AnyImage(Library& library, std::shared_ptr<const CodeImage>* out) {
  const Device* device = AnsweringDevice();
  if (device == nullptr) return CUDA_ERROR_NO_DEVICE;
  return ImageFor(library, *device, out);
}

CUresult MakeLibrary(std::span<const std::uint8_t> code, CUlibrary* out) {
  auto* library = new Library;
  library->bytes.assign(code.begin(), code.end());
  bool all_loaded = true;
  std::shared_ptr<const CodeImage> image;
  CUresult result = AnyImage(*library, &image);
  if (result == CUDA_SUCCESS) {
    for (int i = 0; i < DeviceCount(); ++i) {
      all_loaded = all_loaded && library->images.contains(CapabilityOf(*FindDevice(i)));
    }
    if (all_loaded) std::vector<std::uint8_t>().swap(library->bytes);
    library->handle = NewHandle(library);
    if (library->handle == nullptr) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    delete library;
    return result;
  }
  *out = library->handle;
  return CUDA_SUCCESS;
}

CUresult KernelOf(Library& library, const CodeImage& image, std::string_view name, Kernel** out) {
  if (const auto found = library.kernels.find(name); found != library.kernels.end()) {
    *out = found->second.get();
    return CUDA_SUCCESS;
  }
  if (!image.opaque && image.kernels.find(name) == image.kernels.end()) return CUDA_ERROR_NOT_FOUND;
  auto kernel = std::make_unique<Kernel>();
  kernel->library = &library;
  kernel->name = name;
  kernel->handle = NewHandle(kernel.get());
  if (kernel->handle == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = kernel.get();
  library.kernels.emplace(kernel->name, std::move(kernel));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult ModuleOf(Library& library, Context& context, Module** module) {
  std::lock_guard lock(library.mutex);
  if (const auto found = library.modules.find(&context); found != library.modules.end()) {
    *module = found->second;
    return CUDA_SUCCESS;
  }
  std::shared_ptr<const CodeImage> image;
  SIM_TRY(ImageFor(library, *context.device, &image));
  SIM_TRY(MakeModule(context, std::move(image), &library, module));
  library.modules.emplace(&context, *module);
  return CUDA_SUCCESS;
}

CUresult FunctionOf(Kernel& kernel, Context& context, Function** function) {
  if (kernel.last_context.load(std::memory_order_acquire) == context.id) {
    *function = kernel.last_function.load(std::memory_order_acquire);
    if (kernel.last_context.load(std::memory_order_acquire) == context.id) return CUDA_SUCCESS;
  }
  Module* module = nullptr;
  SIM_TRY(ModuleOf(*kernel.library, context, &module));
  SIM_TRY(FunctionOf(*module, kernel.name, function));
  (*function)->kernel = &kernel;
  kernel.last_context.store(0, std::memory_order_release);
  kernel.last_function.store(*function, std::memory_order_release);
  kernel.last_context.store(context.id, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult FindFunction(CUfunction handle, Context& context, Function** function) {
  const auto bits = reinterpret_cast<std::uint64_t>(handle);
  if (KindOf(bits) == HandleKind::kKernel) {
    Kernel* kernel = Find<Kernel>(reinterpret_cast<CUkernel>(handle));
    if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return FunctionOf(*kernel, context, function);
  }
  *function = Find<Function>(handle);
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuLibraryLoadData)(CUlibrary* handle, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  if (handle == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t size = ImageSize(&code);
  if (size == 0) return CUDA_ERROR_INVALID_IMAGE;
  return MakeLibrary({static_cast<const std::uint8_t*>(code), size}, handle);
}

SIM_API(cuLibraryLoadFromFile)(CUlibrary* handle, const char* path, CUjit_option*, void**, unsigned,
                               CUlibraryOption*, void**, unsigned) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::uint8_t> bytes;
  SIM_TRY(ReadCodeFile(path, &bytes));
  return MakeLibrary(std::span(bytes).first(bytes.size() - 1), handle);
}

SIM_API(cuLibraryUnload)(CUlibrary handle) {
  Library* library = RemoveHandle<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (auto& [context, module] : library->modules) UnloadModule(*module);
  for (auto& [name, kernel] : library->kernels) RemoveHandle<Kernel>(kernel->handle);
  if (library->managed_in != nullptr) {
    if (WaitForWork(*library->managed_in))
      for (auto& [name, variable] : library->managed) FreeDevice(variable.address);
    impl_cuDevicePrimaryCtxRelease_v2(library->managed_in->device->ordinal);
  }
  delete library;
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetKernel)(CUkernel* handle, CUlibrary library_handle, const char* name) {
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* library = Find<Library>(library_handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(library->mutex);
  std::shared_ptr<const CodeImage> image;
  SIM_TRY(AnyImage(*library, &image));
  Kernel* kernel = nullptr;
  SIM_TRY(KernelOf(*library, *image, name, &kernel));
  *handle = kernel->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetKernelCount)(unsigned* count, CUlibrary handle) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* library = Find<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(library->mutex);
  std::shared_ptr<const CodeImage> image;
  SIM_TRY(AnyImage(*library, &image));
  *count = static_cast<unsigned>(image->kernels.size());
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryEnumerateKernels)(CUkernel* kernels, unsigned count, CUlibrary handle) {
  if (kernels == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  Library* library = Find<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(library->mutex);
  std::shared_ptr<const CodeImage> image;
  SIM_TRY(AnyImage(*library, &image));
  unsigned done = 0;
  for (const auto& [name, info] : image->kernels) {
    if (done == count) break;
    Kernel* kernel = nullptr;
    SIM_TRY(KernelOf(*library, *image, name, &kernel));
    kernels[done++] = kernel->handle;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetModule)(CUmodule* handle, CUlibrary library_handle) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  Library* library = Find<Library>(library_handle);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Module* module = nullptr;
  SIM_TRY(ModuleOf(*library, *context, &module));
  *handle = module->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetGlobal)(CUdeviceptr* address, std::size_t* bytes, CUlibrary handle,
                            const char* name) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* library = Find<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Module* module = nullptr;
  SIM_TRY(ModuleOf(*library, *context, &module));
  Variable variable;
  SIM_TRY(VariableOf(*module, name, &variable));
  if (address != nullptr) *address = variable.address;
  if (bytes != nullptr) *bytes = variable.size;
  return CUDA_SUCCESS;
}

namespace {

// The runtime asks before any context exists: managed variables live in the first device's primary
// context, which the library retains until it is unloaded.
CUresult AllocateManaged(Library& library, Variable* variable) {
  if (library.managed_in == nullptr) {
    const Device* device = FindDevice(0);
    if (device == nullptr) return CUDA_ERROR_NO_DEVICE;
    SIM_TRY(RetainPrimary(*device, &library.managed_in));
  }
  InContext scope(*library.managed_in);
  return impl_cuMemAllocManaged(&variable->address, std::max<std::uint64_t>(variable->size, 1),
                                CU_MEM_ATTACH_GLOBAL);
}

}  // namespace

SIM_API(cuLibraryGetManaged)(CUdeviceptr* address, std::size_t* bytes, CUlibrary handle,
                             const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* library = Find<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(library->mutex);
  auto found = library->managed.find(name);
  if (found == library->managed.end()) {
    std::shared_ptr<const CodeImage> image;
    SIM_TRY(AnyImage(*library, &image));
    const auto known = image->variables.find(name);
    const bool exists = known != image->variables.end() && known->second.managed;
    if (!exists && !image->opaque) return CUDA_ERROR_NOT_FOUND;
    Variable variable{0, exists ? known->second.size : 4096};
    SIM_TRY(AllocateManaged(*library, &variable));
    if (exists && !known->second.content.empty()) {
      std::memcpy(reinterpret_cast<void*>(variable.address), known->second.content.data(),
                  known->second.content.size());
      NoteWritten(variable.address, known->second.content.size());
    }
    found = library->managed.emplace(name, variable).first;
  }
  if (address != nullptr) *address = found->second.address;
  if (bytes != nullptr) *bytes = found->second.size;
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetUnifiedFunction)(void**, CUlibrary handle, const char* symbol) {
  if (symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Find<Library>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}

SIM_API(cuKernelGetFunction)(CUfunction* handle, CUkernel kernel_handle) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  Kernel* kernel = Find<Kernel>(kernel_handle);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Function* function = nullptr;
  SIM_TRY(FunctionOf(*kernel, *context, &function));
  *handle = function->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuKernelGetLibrary)(CUlibrary* library, CUkernel handle) {
  Kernel* kernel = Find<Kernel>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *library = kernel->library->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuKernelGetName)(const char** name, CUkernel handle) {
  Kernel* kernel = Find<Kernel>(handle);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

namespace {

// A function as it would be on a device, for questions that need no context.
CUresult Describe(Kernel& kernel, const Device& device, Function* function) {
  std::lock_guard lock(kernel.library->mutex);
  std::shared_ptr<const CodeImage> image;
  SIM_TRY(ImageFor(*kernel.library, device, &image));
  const auto known = image->kernels.find(kernel.name);
  if (known != image->kernels.end()) {
    function->info = known->second;
  } else if (!image->opaque) {
    return CUDA_ERROR_NOT_FOUND;
  }
  function->opaque = known == image->kernels.end();
  function->ptx_version = image->ptx_version;
  function->binary_version = image->kind == CodeKind::kPtx ? CapabilityOf(device) : image->arch;
  function->context = &PrimaryContext(device);
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuKernelGetParamInfo)(CUkernel handle, std::size_t index, std::size_t* offset,
                              std::size_t* size) {
  Kernel* kernel = Find<Kernel>(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = AnsweringDevice();
  if (device == nullptr) return CUDA_ERROR_NO_DEVICE;
  Function function;
  SIM_TRY(Describe(*kernel, *device, &function));
  if (index >= function.info.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function.info.params[index].offset;
  if (size != nullptr) *size = function.info.params[index].size;
  return CUDA_SUCCESS;
}

SIM_API(cuKernelGetAttribute)(int* value, CUfunction_attribute attribute, CUkernel handle,
                              CUdevice ordinal) {
  Kernel* kernel = Find<Kernel>(handle);
  const Device* device = FindDevice(ordinal);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Function function;
  SIM_TRY(Describe(*kernel, *device, &function));
  return GetAttribute(function, kernel->settings, attribute, value);
}

SIM_API(cuKernelSetAttribute)(CUfunction_attribute attribute, int value, CUkernel handle,
                              CUdevice ordinal) {
  Kernel* kernel = Find<Kernel>(handle);
  const Device* device = FindDevice(ordinal);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Function function;
  SIM_TRY(Describe(*kernel, *device, &function));
  return SetAttribute(*device, function.info, kernel->settings, attribute, value);
}

SIM_API(cuKernelSetCacheConfig)(CUkernel handle, CUfunc_cache config, CUdevice ordinal) {
  Kernel* kernel = Find<Kernel>(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (FindDevice(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
    return CUDA_ERROR_INVALID_VALUE;
  kernel->settings.cache_config = config;
  return CUDA_SUCCESS;
}
