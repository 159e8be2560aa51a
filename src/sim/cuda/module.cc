#include "sim/cuda/module.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/in_context.h"
#include "sim/cuda/launch.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/work.h"

namespace tessera::sim {
namespace {

// Code of all modules of a context shares blocks, as the driver's code heap does.
std::mutex code_mutex;
std::map<std::uint64_t, std::uint64_t>& CodeBytes() {
  static auto* bytes = new std::map<std::uint64_t, std::uint64_t>;
  return *bytes;
}

std::uint64_t Blocks(std::uint64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

bool TakeCode(const Context& context, std::uint64_t bytes) {
  std::lock_guard lock(code_mutex);
  std::uint64_t& held = CodeBytes()[context.id];
  const std::uint64_t more = Blocks(held + bytes) - Blocks(held);
  if (more != 0 && !ChargeCard(context.card, more)) return false;
  held += bytes;
  return true;
}

void GiveCode(const Context& context, std::uint64_t bytes) {
  std::lock_guard lock(code_mutex);
  std::uint64_t& held = CodeBytes()[context.id];
  const std::uint64_t less = Blocks(held) - Blocks(held - bytes);
  if (less != 0) UnchargeCard(context.card, less);
  held -= bytes;
}

// Code is loaded lazily, so that the first launch of a kernel in a capture brings its variables
// with it: the driver's own allocations are no calls of the program, and captures do not mind them.
class OutsideCapture {
 public:
  OutsideCapture() { impl_cuThreadExchangeStreamCaptureMode(&mode_); }
  ~OutsideCapture() { impl_cuThreadExchangeStreamCaptureMode(&mode_); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

CUresult MakeVariables(Module& module) {
  InContext scope(*module.context);
  OutsideCapture quiet;
  for (const auto& [name, info] : module.image->variables) {
    if (info.managed && module.library != nullptr) continue;  // the library's own
    Variable variable{0, info.size};
    const CUresult made =
        info.managed
            ? impl_cuMemAllocManaged(&variable.address, std::max<std::size_t>(info.size, 1),
                                     CU_MEM_ATTACH_GLOBAL)
            : AllocateDevice(*module.context, std::max<std::size_t>(info.size, 1),
                             &variable.address);
    if (made != CUDA_SUCCESS) return made;
    module.allocations.push_back(variable.address);
    // Device memory is mapped in this process: a variable's first content needs no copy engine.
    if (!info.content.empty()) {
      std::memcpy(reinterpret_cast<void*>(variable.address), info.content.data(),
                  info.content.size());
      NoteWritten(variable.address, info.content.size());
    }
    module.variables.emplace(name, variable);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult ErrorOf(ImageError error) {
  switch (error) {
    case ImageError::kNoBinaryForGpu:
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case ImageError::kInvalidPtx:
      return CUDA_ERROR_INVALID_PTX;
    case ImageError::kInvalidImage:
      break;
  }
  return CUDA_ERROR_INVALID_IMAGE;
}

CUresult MakeModule(Context& context, std::shared_ptr<const CodeImage> image, Library* library,
                    Module** out) {
  auto* module = new Module;
  module->context = &context;
  module->library = library;
  module->image = std::move(image);
  if (!TakeCode(context, module->image->code_bytes)) {
    delete module;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  module->charged_code = module->image->code_bytes;
  CUresult made = MakeVariables(*module);
  if (made == CUDA_SUCCESS) {
    module->handle = NewHandle(module);
    if (module->handle == nullptr) made = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (made != CUDA_SUCCESS) {
    DestroyModule(*module);
    return made;
  }
  *out = module;
  return CUDA_SUCCESS;
}

namespace {
void Destroy(Module& module, bool with_memory) {
  if (module.handle != nullptr) RemoveHandle<Module>(module.handle);
  for (auto& [name, function] : module.functions) RemoveHandle<Function>(function->handle);
  if (with_memory)
    for (CUdeviceptr address : module.allocations) FreeDevice(address);
  GiveCode(*module.context, module.charged_code);
  delete &module;
}
}  // namespace

void DestroyModule(Module& module) { Destroy(module, true); }

void UnloadModule(Module& module) { Destroy(module, WaitForWork(*module.context)); }

CUresult FunctionOf(Module& module, std::string_view name, Function** out) {
  std::lock_guard lock(module.mutex);
  if (const auto found = module.functions.find(name); found != module.functions.end()) {
    *out = found->second.get();
    return CUDA_SUCCESS;
  }
  const CodeImage& image = *module.image;
  const auto known = image.kernels.find(name);
  if (known == image.kernels.end() && !image.opaque) return CUDA_ERROR_NOT_FOUND;
  auto function = std::make_unique<Function>();
  function->module = &module;
  function->context = module.context;
  function->ptx_version = image.ptx_version;
  const CardSpec& spec = *module.context->device->spec;
  function->binary_version =
      image.kind == CodeKind::kPtx ? spec.cc_major * 10 + spec.cc_minor : image.arch;
  function->opaque = image.opaque;
  if (known != image.kernels.end()) {
    function->info = known->second;
  } else {
    function->info.name = name;
    function->info.registers = 32;
  }
  for (int i = 0; i < 3; ++i)
    function->settings.cluster[i] = static_cast<int>(function->info.cluster[i]);
  function->settings.cluster_must_be_set = 0;
  function->duration_ns = KernelDuration(name);
  const std::string symbol = "simkernel_" + std::string(name);
  function->host = reinterpret_cast<HostKernel>(dlsym(RTLD_DEFAULT, symbol.c_str()));
  function->handle = NewHandle(function.get());
  if (function->handle == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = function.get();
  module.functions.emplace(function->info.name, std::move(function));
  return CUDA_SUCCESS;
}

CUresult VariableOf(Module& module, std::string_view name, Variable* variable) {
  std::lock_guard lock(module.mutex);
  const auto found = module.variables.find(name);
  if (found != module.variables.end()) {
    *variable = found->second;
    return CUDA_SUCCESS;
  }
  if (!module.image->opaque) return CUDA_ERROR_NOT_FOUND;
  // Size unknown: a page, so that the address can be used.
  Variable made{0, 4096};
  SIM_TRY(AllocateDevice(*module.context, made.size, &made.address));
  module.allocations.push_back(made.address);
  module.variables.emplace(std::string(name), made);
  *variable = made;
  return CUDA_SUCCESS;
}

void EndModulesOf(Context& context) {
  // Libraries outlive contexts: only their module here goes.
  ForEach<Library>([&](Library* library) {
    std::lock_guard lock(library->mutex);
    library->modules.erase(&context);
    if (library->managed_in == &context) {
      library->managed_in = nullptr;  // reset: memory and references are gone with it
      library->managed.clear();
    }
    for (auto& [name, kernel] : library->kernels) kernel->last_context = 0;
  });
  ForEach<Module>([&](Module* module) {
    if (module->context == &context) DestroyModule(*module);
  });
}

}  // namespace tessera::sim

using namespace tessera::sim;

namespace {

CUresult LoadImage(const void* data, bool ptx_only, CUmodule* out) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (out == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t size = ImageSize(&data);
  if (size == 0) return CUDA_ERROR_INVALID_IMAGE;
  const CardSpec& spec = *context->device->spec;
  ImageResult chosen = ChooseImage({static_cast<const std::uint8_t*>(data), size},
                                   {spec.cc_major, spec.cc_minor}, ptx_only);
  if (!chosen.ok) return ErrorOf(chosen.error);
  Module* module = nullptr;
  SIM_TRY(
      MakeModule(*context, std::make_shared<CodeImage>(std::move(chosen.image)), nullptr, &module));
  *out = module->handle;
  return CUDA_SUCCESS;
}

bool ForcesJit() {
  const char* force = std::getenv("CUDA_FORCE_PTX_JIT");
  return force != nullptr && std::strcmp(force, "1") == 0;
}

}  // namespace

SIM_API(cuModuleLoadData)(CUmodule* module, const void* image) {
  return LoadImage(image, ForcesJit(), module);
}

SIM_API(cuModuleLoadDataEx)(CUmodule* module, const void* image, unsigned count,
                            CUjit_option* options, void** values) {
  for (unsigned i = 0; options != nullptr && values != nullptr && i < count; ++i) {
    // The logs stay empty: their sizes say so.
    if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
        options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      values[i] = nullptr;
    }
  }
  return LoadImage(image, ForcesJit(), module);
}

SIM_API(cuModuleLoadFatBinary)(CUmodule* module, const void* image) {
  return LoadImage(image, ForcesJit(), module);
}

namespace tessera::sim {
CUresult ReadCodeFile(const char* path, std::vector<std::uint8_t>* bytes) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(path, "rbe");
  if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  std::uint8_t piece[65536];
  while (const std::size_t got = std::fread(piece, 1, sizeof(piece), file)) {
    bytes->insert(bytes->end(), piece, piece + got);
    if (bytes->size() > (std::size_t{1} << 31)) break;
  }
  std::fclose(file);
  bytes->push_back(0);  // ends PTX text
  return CUDA_SUCCESS;
}
}  // namespace tessera::sim

SIM_API(cuModuleLoad)(CUmodule* out, const char* path) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::uint8_t> bytes;
  SIM_TRY(ReadCodeFile(path, &bytes));
  const CardSpec& spec = *context->device->spec;
  ImageResult chosen = ChooseImage(std::span(bytes).first(bytes.size() - 1),
                                   {spec.cc_major, spec.cc_minor}, ForcesJit());
  if (!chosen.ok) return ErrorOf(chosen.error);
  Module* module = nullptr;
  SIM_TRY(
      MakeModule(*context, std::make_shared<CodeImage>(std::move(chosen.image)), nullptr, &module));
  *out = module->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuModuleUnload)(CUmodule handle) {
  Module* module = Find<Module>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module->library != nullptr) return CUDA_ERROR_INVALID_HANDLE;  // unloaded with its library
  SIM_TRY(ForbiddenInCapture());
  UnloadModule(*module);
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetLoadingMode)(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const char* wanted = std::getenv("CUDA_MODULE_LOADING");
  *mode = wanted != nullptr && std::strcmp(wanted, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
                                                                 : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetFunction)(CUfunction* handle, CUmodule module_handle, const char* name) {
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* module = Find<Module>(module_handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Function* function = nullptr;
  SIM_TRY(FunctionOf(*module, name, &function));
  *handle = function->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetFunctionCount)(unsigned* count, CUmodule handle) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* module = Find<Module>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(module->image->kernels.size());
  return CUDA_SUCCESS;
}

SIM_API(cuModuleEnumerateFunctions)(CUfunction* functions, unsigned count, CUmodule handle) {
  if (functions == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  Module* module = Find<Module>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  unsigned done = 0;
  for (const auto& [name, info] : module->image->kernels) {
    if (done == count) break;
    Function* function = nullptr;
    SIM_TRY(FunctionOf(*module, name, &function));
    functions[done++] = function->handle;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetGlobal_v2)(CUdeviceptr* address, std::size_t* bytes, CUmodule handle,
                              const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* module = Find<Module>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Variable variable;
  SIM_TRY(VariableOf(*module, name, &variable));
  if (address != nullptr) *address = variable.address;
  if (bytes != nullptr) *bytes = variable.size;
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetGlobal)(CUdeviceptr_v1* address, unsigned* bytes, CUmodule handle,
                           const char* name) {
  CUdeviceptr wide = 0;
  std::size_t size = 0;
  SIM_TRY(impl_cuModuleGetGlobal_v2(&wide, &size, handle, name));
  if (wide > UINT32_MAX || size > UINT32_MAX)
    return CUDA_ERROR_INVALID_VALUE;  // not to be said in this old form
  if (address != nullptr) *address = static_cast<CUdeviceptr_v1>(wide);
  if (bytes != nullptr) *bytes = static_cast<unsigned>(size);
  return CUDA_SUCCESS;
}

// Texture and surface references left the toolchain with CUDA 12: no image of it has any.
SIM_API(cuModuleGetTexRef)(CUtexref*, CUmodule handle, const char*) {
  return Find<Module>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}
SIM_API(cuModuleGetSurfRef)(CUsurfref*, CUmodule handle, const char*) {
  return Find<Module>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}
