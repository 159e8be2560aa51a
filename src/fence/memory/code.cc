#include "memory/code.h"

#include "os/os.h"

namespace tessera::fence {

Capability CapabilityOf(CUdevice device) {
  int major = 0, minor = 0;
  if (device < 0) device = 0;  // the runtime loads libraries before it has a context
  if (real::cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) !=
          CUDA_SUCCESS ||
      real::cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) !=
          CUDA_SUCCESS)
    return {};
  return {static_cast<std::uint32_t>(major), static_cast<std::uint32_t>(minor)};
}

std::uint64_t FileNeed(const char* path, CUdevice device) {
  const int file = path == nullptr ? -1 : os::Open(path, os::Access::kRead);
  if (file < 0) return 0;
  std::uint64_t need = 0;
  if (const long bytes = os::FileBytes(file); bytes > 0) {
    const auto size = static_cast<std::size_t>(bytes);
    if (void* map = os::MapShared(file, size, os::Access::kRead); map != nullptr) {
      need = ImageBytes(map, size, CapabilityOf(device));
      os::Unmap(map, size);
    }
  }
  os::Close(file);
  return need;
}

void AdoptCorrection(std::uint64_t key, int card, std::int64_t more) {
  Allocation entry;
  if (more <= 0 || !AnyFloating(card) || !HandleTable().Take(key, &entry)) return;
  entry.size += static_cast<std::uint64_t>(more);
  HandleTable().PutBack(key, entry);
  ForgetCorrection(card, more);
}

}  // namespace tessera::fence
