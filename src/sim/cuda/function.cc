// What functions say about themselves, and what may be set on them.
#include <algorithm>

#include "sim/cuda/api.h"
#include "sim/cuda/module.h"

namespace tessera::sim {
namespace {
constexpr int kDefaultShared = 48 * 1024;  // without opting in, every architecture
}

// Shared memory per block with opt-in and per multiprocessor, by compute capability (CUDA C++
// Programming Guide, table "Technical Specifications per Compute Capability"), 1 KiB per block
// being the system's.
int SharedOptin(const Device& device) {
  const std::uint32_t capability = device.spec->cc_major * 10 + device.spec->cc_minor;
  switch (capability) {
    case 70:
    case 72:
      return 96 * 1024;
    case 75:
      return 64 * 1024;
    case 80:
    case 87:
      return 163 * 1024;
    case 86:
    case 89:
    case 120:
    case 121:
      return 99 * 1024;
    default:
      return capability >= 90 ? 227 * 1024 : kDefaultShared;
  }
}

int DynamicSharedLimit(const Function& function) {
  const FunctionSettings& settings =
      function.kernel != nullptr ? function.kernel->settings : function.settings;
  const int set = settings.max_dynamic_shared.load();
  return set >= 0 ? set
                  : std::max(0, kDefaultShared - static_cast<int>(function.info.shared_bytes));
}

CUresult GetAttribute(const Function& function, const FunctionSettings& settings,
                      CUfunction_attribute attribute, int* value) {
  const KernelInfo& info = function.info;
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: {
      // Registers come in groups of 8 per thread, 65,536 a multiprocessor.
      const int by_registers =
          info.registers == 0 ? 1024
                              : static_cast<int>(65536 / ((info.registers + 7) / 8 * 8) / 32 * 32);
      *value = std::min<int>(static_cast<int>(info.max_threads), std::max(by_registers, 32));
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(info.shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = static_cast<int>(info.const_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(info.local_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(info.registers);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = static_cast<int>(function.ptx_version);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = static_cast<int>(function.binary_version);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int set = settings.max_dynamic_shared.load();
      *value = set >= 0 ? set : std::max(0, kDefaultShared - static_cast<int>(info.shared_bytes));
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = settings.carveout.load();
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      *value = settings.cluster_must_be_set.load();
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
      const int i = attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
      const int set = settings.cluster[i].load();
      *value = set != 0 ? set : static_cast<int>(info.cluster[i]);
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = settings.non_portable_cluster.load();
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = settings.cluster_policy.load();
      return CUDA_SUCCESS;
    default:
      // Later runtimes ask for more than this driver's version knows, and take 0 for an answer.
      if (attribute < CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK || attribute > 31)
        return CUDA_ERROR_INVALID_VALUE;
      *value = 0;
      return CUDA_SUCCESS;
  }
}

CUresult SetAttribute(const Device& device, const KernelInfo& info, FunctionSettings& settings,
                      CUfunction_attribute attribute, int value) {
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value + static_cast<int>(info.shared_bytes) > SharedOptin(device))
        return CUDA_ERROR_INVALID_VALUE;
      settings.max_dynamic_shared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      settings.carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
      const int i = attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
      if (value < 0 || info.cluster[i] != 0) return CUDA_ERROR_INVALID_VALUE;
      settings.cluster[i] = value;
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      settings.non_portable_cluster = value != 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < 0 || value > 2) return CUDA_ERROR_INVALID_VALUE;
      settings.cluster_policy = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

namespace {

// The function of a CUfunction argument that may be a CUkernel, without needing a context for a
// plain function.
CUresult AnyFunction(CUfunction handle, Function** function) {
  if (KindOf(reinterpret_cast<std::uint64_t>(handle)) != HandleKind::kKernel) {
    *function = Find<Function>(handle);
    return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  return FindFunction(handle, *context, function);
}

FunctionSettings& SettingsOf(Function& function) {
  return function.kernel != nullptr ? function.kernel->settings : function.settings;
}

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuFuncGetAttribute)(int* value, CUfunction_attribute attribute, CUfunction handle) {
  Function* function = nullptr;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(AnyFunction(handle, &function));
  return GetAttribute(*function, SettingsOf(*function), attribute, value);
}

SIM_API(cuFuncSetAttribute)(CUfunction handle, CUfunction_attribute attribute, int value) {
  Function* function = nullptr;
  SIM_TRY(AnyFunction(handle, &function));
  return SetAttribute(*function->context->device, function->info, SettingsOf(*function), attribute,
                      value);
}

SIM_API(cuFuncSetCacheConfig)(CUfunction handle, CUfunc_cache config) {
  Function* function = nullptr;
  SIM_TRY(AnyFunction(handle, &function));
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
    return CUDA_ERROR_INVALID_VALUE;
  SettingsOf(*function).cache_config = config;
  return CUDA_SUCCESS;
}

SIM_API(cuFuncSetSharedMemConfig)(CUfunction handle, CUsharedconfig config) {
  Function* function = nullptr;
  SIM_TRY(AnyFunction(handle, &function));
  return config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE
                                                            : CUDA_SUCCESS;
}

SIM_API(cuFuncGetModule)(CUmodule* module, CUfunction handle) {
  Function* function = nullptr;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(AnyFunction(handle, &function));
  *module = function->module->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuFuncGetName)(const char** name, CUfunction handle) {
  Function* function = nullptr;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(AnyFunction(handle, &function));
  *name = function->info.name.c_str();
  return CUDA_SUCCESS;
}

SIM_API(cuFuncGetParamInfo)(CUfunction handle, std::size_t index, std::size_t* offset,
                            std::size_t* size) {
  Function* function = nullptr;
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(AnyFunction(handle, &function));
  if (index >= function->info.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->info.params[index].offset;
  if (size != nullptr) *size = function->info.params[index].size;
  return CUDA_SUCCESS;
}

SIM_API(cuFuncIsLoaded)(CUfunctionLoadingState* state, CUfunction handle) {
  Function* function = nullptr;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(AnyFunction(handle, &function));
  *state = function->loaded.load() ? CU_FUNCTION_LOADING_STATE_LOADED
                                   : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}

SIM_API(cuFuncLoad)(CUfunction handle) {
  Function* function = nullptr;
  SIM_TRY(AnyFunction(handle, &function));
  function->loaded.store(true);
  return CUDA_SUCCESS;
}
