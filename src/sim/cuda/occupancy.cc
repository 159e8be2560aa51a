// Occupancy: how many blocks are on a multiprocessor at once. The arithmetic of NVIDIA's occupancy
// calculator with the limits of the CUDA C++ Programming Guide, table "Technical Specifications per
// Compute Capability".
#include <algorithm>

#include "sim/cuda/api.h"
#include "sim/cuda/launch.h"

namespace tessera::sim {
namespace {

struct Limits {
  int threads, blocks, shared, registers = 65536;
};

Limits LimitsOf(const Device& device) {
  const std::uint32_t capability = device.spec->cc_major * 10 + device.spec->cc_minor;
  switch (capability) {
    case 75:
      return {1024, 16, 64 * 1024};
    case 80:
      return {2048, 32, 164 * 1024};
    case 86:
      return {1536, 16, 100 * 1024};
    case 87:
      return {1536, 16, 164 * 1024};
    case 89:
      return {1536, 24, 100 * 1024};
    case 120:
    case 121:
      return {1536, 24, 100 * 1024};
    default:
      return capability >= 90 ? Limits{2048, 32, 228 * 1024} : Limits{2048, 32, 96 * 1024};
  }
}

constexpr int kSystemSharedPerBlock = 1024;  // from compute capability 8.0 on

}  // namespace

int BlocksPerMultiprocessor(const Function& function, int block_size, std::size_t dynamic_shared) {
  const Device& device = *function.context->device;
  const Limits limits = LimitsOf(device);
  if (block_size <= 0 || block_size > 1024) return 0;
  const int warps = (block_size + 31) / 32;
  int blocks = std::min(limits.blocks, limits.threads / (warps * 32));
  const int registers =
      static_cast<int>((std::max(function.info.registers, 1u) + 7) / 8 * 8) * 32;  // a warp's
  blocks = std::min(blocks, limits.registers / registers / warps);
  std::size_t shared = function.info.shared_bytes + dynamic_shared;
  if (device.spec->cc_major >= 8) shared += kSystemSharedPerBlock;
  shared = (shared + 127) / 128 * 128;
  if (shared > static_cast<std::size_t>(limits.shared)) return 0;
  if (shared != 0) blocks = std::min<int>(blocks, static_cast<int>(limits.shared / shared));
  return blocks;
}

namespace {
CUresult Asked(CUfunction handle, Function** function) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  return FindFunction(handle, *context, function);
}

unsigned ClusterOf(const Function& function, const CUlaunchConfig& config) {
  unsigned size = 1;
  for (int i = 0; i < 3; ++i) size *= std::max(function.info.cluster[i], 1u);
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& dim = config.attrs[i].value.clusterDim;
    size = dim.x * dim.y * dim.z;
  }
  return size;
}
}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int* blocks, CUfunction handle,
                                                              int block_size,
                                                              std::size_t dynamic_shared,
                                                              unsigned flags) {
  Function* function = nullptr;
  if (blocks == nullptr || block_size <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Asked(handle, &function));
  *blocks = BlocksPerMultiprocessor(*function, block_size, dynamic_shared);
  return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, CUfunction function,
                                                     int block_size, std::size_t dynamic_shared) {
  return impl_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                                   dynamic_shared, 0);
}

SIM_API(cuOccupancyMaxPotentialBlockSizeWithFlags)(int* grid, int* block, CUfunction handle,
                                                   CUoccupancyB2DSize shared_of,
                                                   std::size_t dynamic_shared, int limit,
                                                   unsigned flags) {
  Function* function = nullptr;
  if (grid == nullptr || block == nullptr || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Asked(handle, &function));
  int most = 0;
  SIM_TRY(
      GetAttribute(*function, function->settings, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &most));
  if (limit > 0) most = std::min(most, limit);
  int best_threads = 0, best_block = 0, best_blocks = 0;
  for (int size = (most + 31) / 32 * 32; size > 0; size -= 32) {
    const int tried = std::min(size, most);
    const std::size_t shared = shared_of != nullptr ? shared_of(tried) : dynamic_shared;
    const int blocks = BlocksPerMultiprocessor(*function, tried, shared);
    if (blocks * tried > best_threads) {
      best_threads = blocks * tried;
      best_block = tried;
      best_blocks = blocks;
    }
  }
  *block = best_block;
  *grid = best_blocks * static_cast<int>(function->context->device->spec->sm_count);
  return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxPotentialBlockSize)(int* grid, int* block, CUfunction function,
                                          CUoccupancyB2DSize shared_of, std::size_t dynamic_shared,
                                          int limit) {
  return impl_cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of,
                                                        dynamic_shared, limit, 0);
}

SIM_API(cuOccupancyAvailableDynamicSMemPerBlock)(std::size_t* bytes, CUfunction handle, int blocks,
                                                 int block_size) {
  Function* function = nullptr;
  if (bytes == nullptr || blocks <= 0 || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Asked(handle, &function));
  const Device& device = *function->context->device;
  const int system = device.spec->cc_major >= 8 ? kSystemSharedPerBlock : 0;
  const int each =
      std::min(LimitsOf(device).shared / blocks / 128 * 128 - system, SharedOptin(device));
  *bytes =
      static_cast<std::size_t>(std::max(0, each - static_cast<int>(function->info.shared_bytes)));
  return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxPotentialClusterSize)(int* size, CUfunction handle,
                                            const CUlaunchConfig* config) {
  Function* function = nullptr;
  if (size == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Asked(handle, &function));
  if (function->context->device->spec->cc_major < 9) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const FunctionSettings& settings =
      function->kernel != nullptr ? function->kernel->settings : function->settings;
  *size = settings.non_portable_cluster.load() ? 16 : 8;
  return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxActiveClusters)(int* clusters, CUfunction handle,
                                      const CUlaunchConfig* config) {
  Function* function = nullptr;
  if (clusters == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Asked(handle, &function));
  const unsigned cluster = ClusterOf(*function, *config);
  if (cluster == 0) return CUDA_ERROR_INVALID_VALUE;
  const Device& device = *function->context->device;
  if (device.spec->cc_major < 9 && cluster > 1) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const int block = static_cast<int>(config->blockDimX * config->blockDimY * config->blockDimZ);
  const std::uint64_t blocks = std::uint64_t{device.spec->sm_count} *
                               BlocksPerMultiprocessor(*function, block, config->sharedMemBytes);
  *clusters = static_cast<int>(blocks / cluster);
  return CUDA_SUCCESS;
}
