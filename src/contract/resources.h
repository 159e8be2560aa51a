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

}  // namespace tessera::contract
