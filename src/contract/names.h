// Paths, variables and names that more than one part of Tessera must spell alike.
#pragma once

namespace tessera::contract {

// Where a container finds its slice. On the host the same path holds every slice of the node
// (kHostStateDir/slices/ID/{policy,ledger}); a tenant's own mount hides that tree from it.
inline constexpr char kSliceDir[] = "/run/tessera";
inline constexpr char kHostStateDir[] = "/run/tessera";
inline constexpr char kPolicyFile[] = "policy";
inline constexpr char kLedgerFile[] = "ledger";

// Fallback when no mount namespace is to be had: names the slice directory in the environment.
inline constexpr char kEnvSliceDir[] = "TESSERA_SLICE_DIR";

// HAMi's variables, honoured where there is no policy.
inline constexpr char kEnvHamiMemoryLimit[] = "CUDA_DEVICE_MEMORY_LIMIT";  // also with _<index>
inline constexpr char kEnvHamiCoreLimit[] = "CUDA_DEVICE_SM_LIMIT";
inline constexpr char kEnvHamiSharedCache[] = "CUDA_DEVICE_MEMORY_SHARED_CACHE";
inline constexpr char kEnvHamiPriority[] = "CUDA_TASK_PRIORITY";
inline constexpr char kEnvHamiCorePolicy[] = "GPU_CORE_UTILIZATION_POLICY";

inline constexpr char kCudaLibrary[] = "libcuda.so.1";
inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";
inline constexpr char kFenceLibrary[] = "libtessera.so";

}  // namespace tessera::contract
