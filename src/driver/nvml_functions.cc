#include "driver/nvml_functions.h"

#include <dlfcn.h>

#include <array>

#include "contract/names.h"

namespace tessera::driver {
namespace {

// Where distributions put the library when the loader's cache does not name it: WSL, and NVIDIA's
// driver container.
constexpr std::array<const char*, 3> kPlaces = {
    contract::kNvmlLibrary, "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"};

// The newest form that the library has of a function whose forms share one signature.
template <typename F>
void Find(void* library, F& target, std::initializer_list<const char*> symbols) {
  target = nullptr;
  for (const char* symbol : symbols) {
    if (void* found = dlsym(library, symbol)) {
      target = reinterpret_cast<F>(found);
      return;
    }
  }
}

void* Open(const std::string& library, std::string& why) {
  if (!library.empty()) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) why = dlerror();
    return handle;
  }
  for (const char* place : kPlaces) {
    if (void* handle = dlopen(place, RTLD_NOW | RTLD_LOCAL)) return handle;
    if (why.empty()) why = dlerror();
  }
  return nullptr;
}

}  // namespace

Result<NvmlFunctions> LoadNvmlFunctions(const std::string& library) {
  std::string why;
  void* handle = Open(library, why);
  if (handle == nullptr) return Fail(Code::kUnavailable, "no NVIDIA driver: " + why);

  NvmlFunctions f{};
  Find(handle, f.init, {"nvmlInit_v2"});
  Find(handle, f.error_string, {"nvmlErrorString"});
  Find(handle, f.driver_version, {"nvmlSystemGetDriverVersion"});
  Find(handle, f.cuda_version,
       {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"});
  Find(handle, f.count, {"nvmlDeviceGetCount_v2"});
  Find(handle, f.handle_by_index, {"nvmlDeviceGetHandleByIndex_v2"});
  Find(handle, f.uuid, {"nvmlDeviceGetUUID"});
  Find(handle, f.name, {"nvmlDeviceGetName"});
  Find(handle, f.pci, {"nvmlDeviceGetPciInfo_v3"});
  Find(handle, f.memory, {"nvmlDeviceGetMemoryInfo"});
  Find(handle, f.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
  Find(handle, f.compute_capability, {"nvmlDeviceGetCudaComputeCapability"});
  Find(handle, f.core_count, {"nvmlDeviceGetNumGpuCores"});
  Find(handle, f.mig_mode, {"nvmlDeviceGetMigMode"});
  Find(handle, f.mig_count, {"nvmlDeviceGetMaxMigDeviceCount"});
  Find(handle, f.mig_handle, {"nvmlDeviceGetMigDeviceHandleByIndex"});
  Find(handle, f.utilization, {"nvmlDeviceGetUtilizationRates"});
  Find(handle, f.compute_processes,
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
  Find(handle, f.graphics_processes,
       {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"});
  Find(
      handle, f.mps_processes,
      {"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2"});
  Find(handle, f.set_memory_limits, {kSetMemoryLimitsSymbol});
  Find(handle, f.get_memory_limits, {kGetMemoryLimitsSymbol});

  Dl_info info{};
  if (f.init != nullptr && dladdr(reinterpret_cast<void*>(f.init), &info) != 0 && info.dli_fname) {
    f.library = info.dli_fname;
  }
  const bool complete = f.init && f.count && f.handle_by_index && f.uuid && f.name && f.pci &&
                        (f.memory || f.memory_v2) && f.driver_version;
  if (!complete) {
    return Fail(Code::kUnavailable,
                "no NVIDIA driver: " + (f.library.empty() ? library : f.library) +
                    " lacks functions that every driver since R450 has");
  }
  return f;
}

}  // namespace tessera::driver
