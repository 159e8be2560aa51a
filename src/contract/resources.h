// Kubernetes resource and annotation names that clusters with HAMi already use, spelled once.
#pragma once

namespace tessera::contract {

inline constexpr char kResourceGpu[] = "nvidia.com/gpu";        // cards
inline constexpr char kResourceMemory[] = "nvidia.com/gpumem";  // MiB on each card
inline constexpr char kResourceMemoryPercent[] =
    "nvidia.com/gpumem-percentage";                              // 1..100 of each card
inline constexpr char kResourceCores[] = "nvidia.com/gpucores";  // 0..100 of each card
inline constexpr char kResourcePriority[] =
    "nvidia.com/priority";  // 0 high, 1 low; also an annotation
inline constexpr char kResourceMigPrefix[] = "nvidia.com/mig-";

inline constexpr char kAnnotationUseUuid[] = "nvidia.com/use-gpuuuid";
inline constexpr char kAnnotationNoUseUuid[] = "nvidia.com/nouse-gpuuuid";
inline constexpr char kAnnotationUseType[] = "nvidia.com/use-gputype";
inline constexpr char kAnnotationNoUseType[] = "nvidia.com/nouse-gputype";
inline constexpr char kAnnotationNumaBind[] = "nvidia.com/numa-bind";
inline constexpr char kAnnotationMode[] = "nvidia.com/vgpu-mode";
inline constexpr char kAnnotationGpuPolicy[] = "hami.io/gpu-scheduler-policy";

// Written by the scheduler and the node's agent; encodings: docs/formats/annotations.md.
inline constexpr char kAnnotationNode[] = "hami.io/vgpu-node";        // also a label
inline constexpr char kAnnotationPlaceTime[] = "hami.io/vgpu-time";   // the node was chosen
inline constexpr char kAnnotationBindPhase[] = "hami.io/bind-phase";  // allocating, success, failed
inline constexpr char kAnnotationBindTime[] = "hami.io/bind-time";

// The names that carry the same encodings for each vendor; nullptr where a vendor has none, or
// another encoding.
struct VendorAnnotations {
  const char* vendor;         // the word that stands as type in allocations
  const char* node_register;  // on nodes
  const char* handshake;      // on nodes
  const char* to_allocate;    // on pods
  const char* allocated;      // on pods
};

inline constexpr VendorAnnotations kNvidiaAnnotations = {
    "NVIDIA", "hami.io/node-nvidia-register", "hami.io/node-handshake",
    "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-devices-allocated"};

inline constexpr VendorAnnotations kVendorAnnotations[] = {
    kNvidiaAnnotations,
    {"MLU", nullptr, nullptr, "hami.io/cambricon-mlu-devices-to-allocate",
     "hami.io/cambricon-mlu-devices-allocated"},
    {"DCU", "hami.io/node-dcu-register", "hami.io/node-handshake-dcu",
     "hami.io/dcu-devices-to-allocate", "hami.io/dcu-devices-allocated"},
    {"AMDGPU", "hami.io/node-amd-register", nullptr, "hami.io/amd-devices-to-allocate",
     "hami.io/amd-devices-allocated"},
    {"XPU", "hami.io/node-register-xpu", "hami.io/node-handshake-xpu", nullptr, nullptr},
    {"VA", "hami.io/node-va-register", "hami.io/node-handshake-va", nullptr, nullptr},
    {"BIREN", "hami.io/node-biren-register", "hami.io/node-handshake-biren", nullptr, nullptr},
};

// GPUShare's, on pods.
inline constexpr char kGpuShareMemory[] = "aliyun.com/gpu-mem";   // resource
inline constexpr char kGpuShareCount[] = "aliyun.com/gpu-count";  // resource, of nodes only
inline constexpr char kGpuShareIndex[] = "ALIYUN_COM_GPU_MEM_IDX";
inline constexpr char kGpuSharePod[] = "ALIYUN_COM_GPU_MEM_POD";
inline constexpr char kGpuShareCard[] = "ALIYUN_COM_GPU_MEM_DEV";
inline constexpr char kGpuShareAssigned[] = "ALIYUN_COM_GPU_MEM_ASSIGNED";
inline constexpr char kGpuShareAssumeTime[] = "ALIYUN_COM_GPU_MEM_ASSUME_TIME";

}  // namespace tessera::contract
