#include "sim/cuda/launch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/cuda/api.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/event.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/work.h"

namespace tessera::sim {
namespace {

struct StatedDuration {
  std::string name;
  bool prefix;
  std::uint64_t ns;
};

const std::vector<StatedDuration>& StatedDurations() {
  static const auto* durations = [] {
    auto* list = new std::vector<StatedDuration>;
    const char* text = std::getenv("TESSERA_SIM_KERNELS");
    std::string_view rest = text != nullptr ? text : "";
    while (!rest.empty()) {
      const std::string_view entry = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
      const std::size_t colon = entry.rfind(':');
      if (colon == std::string_view::npos) continue;
      StatedDuration stated{std::string(entry.substr(0, colon)), false, 0};
      stated.ns = static_cast<std::uint64_t>(
          std::strtod(std::string(entry.substr(colon + 1)).c_str(), nullptr) * 1000);
      if (stated.name.ends_with('*')) {
        stated.name.pop_back();
        stated.prefix = true;
      }
      list->push_back(std::move(stated));
    }
    return list;
  }();
  return *durations;
}

// What the CUDA runtime documents for a launch that no card could do
// (cudaErrorInvalidConfiguration). The runtime hands on what the driver says, and only the runtime
// launches kernels by CUkernel; the driver's own callers get INVALID_VALUE.
constexpr auto kInvalidConfiguration = static_cast<CUresult>(9);

constexpr unsigned kMaxGridX = 0x7FFFFFFF, kMaxGridYZ = 65535, kMaxBlock = 1024, kMaxBlockZ = 64;

}  // namespace

std::uint64_t KernelDuration(std::string_view name) {
  for (const StatedDuration& stated : StatedDurations()) {
    if (stated.prefix ? name.starts_with(stated.name) : name == stated.name) return stated.ns;
  }
  const NodeState* node = Node();
  return node != nullptr ? node->costs.kernel_ns : 0;
}

std::vector<void*> KernelCall::Arguments() const {
  std::vector<void*> arguments = pointers;
  if (!offsets.empty()) {
    arguments.clear();
    for (const std::size_t offset : offsets)
      arguments.push_back(const_cast<std::uint8_t*>(bytes.data()) + offset);
  }
  return arguments;
}

CUresult CheckLaunch(const Function& function, const LaunchShape& shape) {
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  if (shape.grid[0] > kMaxGridX || shape.grid[1] > kMaxGridYZ || shape.grid[2] > kMaxGridYZ)
    return CUDA_ERROR_INVALID_VALUE;
  if (shape.block[0] > kMaxBlock || shape.block[1] > kMaxBlock || shape.block[2] > kMaxBlockZ) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t threads = std::uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  if (threads > kMaxBlock) return CUDA_ERROR_INVALID_VALUE;
  int most = 0;
  SIM_TRY(
      GetAttribute(function, function.settings, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &most));
  if (threads > static_cast<std::uint64_t>(most)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (shape.shared > static_cast<unsigned>(DynamicSharedLimit(function)))
    return CUDA_ERROR_INVALID_VALUE;

  const std::uint64_t cluster = std::uint64_t{std::max(shape.cluster[0], 1u)} *
                                std::max(shape.cluster[1], 1u) * std::max(shape.cluster[2], 1u);
  if (cluster > 1) {
    if (function.context->device->spec->cc_major < 9) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    const FunctionSettings& settings =
        function.kernel != nullptr ? function.kernel->settings : function.settings;
    if (cluster > (settings.non_portable_cluster.load() ? 16u : 8u))
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    for (int i = 0; i < 3; ++i) {
      if (shape.grid[i] % std::max(shape.cluster[i], 1u) != 0)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
  }
  if (shape.cooperative) {
    const std::uint64_t blocks = std::uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
    const std::uint64_t at_once =
        std::uint64_t{function.context->device->spec->sm_count} *
        BlocksPerMultiprocessor(function, static_cast<int>(threads), shape.shared);
    if (blocks > at_once) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

CUresult CopyArguments(const Function& function, void** params, void** extra, KernelCall* call) {
  call->bytes.clear();
  call->offsets.clear();
  call->pointers.clear();
  call->packed.clear();
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<ParamInfo>& layout = function.info.params;
  if (params != nullptr) {
    for (const ParamInfo& param : layout) {
      if (params[&param - layout.data()] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      const std::size_t at = (call->bytes.size() + 15) / 16 * 16;
      call->bytes.resize(at + param.size);
      std::memcpy(call->bytes.data() + at, params[&param - layout.data()], param.size);
      call->offsets.push_back(at);
    }
    return CUDA_SUCCESS;
  }
  if (extra == nullptr) return CUDA_SUCCESS;
  const std::uint8_t* buffer = nullptr;
  std::size_t size = 0;
  for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = static_cast<const std::uint8_t*>(extra[i + 1]);
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      if (extra[i + 1] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      size = *static_cast<const std::size_t*>(extra[i + 1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr || size > 32764) return size == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  call->packed.assign(buffer, buffer + size);
  call->bytes = call->packed;
  for (const ParamInfo& param : layout) {
    if (param.offset + std::uint64_t{param.size} > size) return CUDA_ERROR_INVALID_VALUE;
    call->offsets.push_back(param.offset);
  }
  return CUDA_SUCCESS;
}

namespace {

CUresult Launch(CUfunction handle, const LaunchShape& shape, Stream& stream, void** params,
                void** extra, const CUlaunchConfig* config) {
  Function* function = nullptr;
  SIM_TRY(FindFunction(handle, *stream.context, &function));
  if (function->context != stream.context) return CUDA_ERROR_INVALID_HANDLE;
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult refused = CheckLaunch(*function, shape)) {
    const bool from_runtime =
        KindOf(reinterpret_cast<std::uint64_t>(handle)) == HandleKind::kKernel;
    return refused == CUDA_ERROR_INVALID_VALUE && from_runtime ? kInvalidConfiguration : refused;
  }
  function->loaded.store(true, std::memory_order_relaxed);

  if (Capturing(stream)) {
    NodeParams node;
    node.type = CU_GRAPH_NODE_TYPE_KERNEL;
    node.context = stream.context->handle;
    KernelCall& call = node.kernel;
    call.function = handle;
    call.is_kernel = KindOf(reinterpret_cast<std::uint64_t>(handle)) == HandleKind::kKernel;
    std::copy_n(shape.grid, 3, call.grid);
    std::copy_n(shape.block, 3, call.block);
    call.shared = shape.shared;
    call.cooperative = shape.cooperative;
    call.context = stream.context->handle;
    SIM_TRY(CopyArguments(*function, params, extra, &call));
    for (unsigned i = 0; config != nullptr && i < config->numAttrs; ++i) {
      call.attributes[config->attrs[i].id] = config->attrs[i].value;
    }
    return CaptureNode(stream, std::move(node));
  }
  SIM_TRY(RefuseLegacyCapture(stream));

  Work work;
  work.engine = EngineKind::kCompute;
  work.duration_ns = function->duration_ns;
  if (function->host != nullptr) {
    KernelCall call;
    SIM_TRY(CopyArguments(*function, params, extra, &call));
    NoteUntrackedWrites();
    work.effect = [host = function->host, call = std::move(call), shape]() {
      std::vector<void*> arguments = call.Arguments();
      const unsigned sizes[6] = {shape.grid[0],  shape.grid[1],  shape.grid[2],
                                 shape.block[0], shape.block[1], shape.block[2]};
      host(arguments.data(), sizes);
      MemoryChanged();
    };
  }
  return Submit(stream, std::move(work));
}

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuLaunchKernel)(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream handle, void** params, void** extra) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  return Launch(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared}, *stream,
                params, extra, nullptr);
}

SIM_API(cuLaunchCooperativeKernel)(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared, CUstream handle,
                                   void** params) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared};
  shape.cooperative = true;
  return Launch(function, shape, *stream, params, nullptr, nullptr);
}

namespace {

CUresult LaunchConfigured(const CUlaunchConfig* config, CUstream handle, CUfunction function,
                          void** params, void** extra) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  if (config->numAttrs != 0 && config->attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                    {config->blockDimX, config->blockDimY, config->blockDimZ},
                    config->sharedMemBytes};
  Event *done = nullptr, *completion = nullptr;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    switch (static_cast<int>(attribute.id)) {
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        shape.cluster[0] = attribute.value.clusterDim.x;
        shape.cluster[1] = attribute.value.clusterDim.y;
        shape.cluster[2] = attribute.value.clusterDim.z;
        if (shape.cluster[0] == 0 || shape.cluster[1] == 0 || shape.cluster[2] == 0)
          return CUDA_ERROR_INVALID_VALUE;
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        shape.cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        SIM_TRY(FindEvent(attribute.value.programmaticEvent.event, &done));
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        SIM_TRY(FindEvent(attribute.value.launchCompletionEvent.event, &completion));
        break;
      default:
        break;
    }
  }
  SIM_TRY(Launch(function, shape, *stream, params, extra, config));
  // Both events are recorded where the kernel ends: that it could be earlier changes no promise.
  for (Event* event : {done, completion}) {
    if (event == nullptr) continue;
    if (Capturing(*stream)) {
      SIM_TRY(CaptureRecord(*stream, *event, false));
    } else {
      SIM_TRY(RecordEvent(*stream, *event));
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuLaunchKernelEx)(const CUlaunchConfig* config, CUfunction function, void** params,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return LaunchConfigured(config, config->hStream, function, params, extra);
}

SIM_API(cuLaunchKernelEx_ptsz)(const CUlaunchConfig* config, CUfunction function, void** params,
                               void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return LaunchConfigured(config, PerThread(config->hStream), function, params, extra);
}

SIM_API(cuLaunchCooperativeKernelMultiDevice)(CUDA_LAUNCH_PARAMS* list, unsigned count,
                                              unsigned flags) {
  if (list == nullptr || count == 0 || (flags & ~3u) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Stream*> streams;
  for (unsigned i = 0; i < count; ++i) {
    if (list[i].hStream == nullptr || list[i].hStream == CU_STREAM_LEGACY ||
        list[i].hStream == CU_STREAM_PER_THREAD) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    Stream* stream = nullptr;
    SIM_TRY(FindStream(list[i].hStream, &stream));
    for (Stream* other : streams) {
      if (other->context->card == stream->context->card) return CUDA_ERROR_INVALID_DEVICE;
    }
    streams.push_back(stream);
  }
  // No kernel starts before the work before it on every stream is done, unless the flags say so.
  if ((flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC) == 0) {
    std::vector<Point> before;
    for (Stream* stream : streams) before.push_back(TailOf(*stream));
    for (Stream* stream : streams) {
      for (const Point& point : before) JoinPoint(*stream, point);
    }
  }
  for (unsigned i = 0; i < count; ++i) {
    const CUDA_LAUNCH_PARAMS& p = list[i];
    LaunchShape shape{{p.gridDimX, p.gridDimY, p.gridDimZ},
                      {p.blockDimX, p.blockDimY, p.blockDimZ},
                      p.sharedMemBytes};
    shape.cooperative = true;
    SIM_TRY(Launch(p.function, shape, *streams[i], p.kernelParams, nullptr, nullptr));
  }
  if ((flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC) == 0) {
    std::vector<Point> after;
    for (Stream* stream : streams) after.push_back(TailOf(*stream));
    for (Stream* stream : streams) {
      for (const Point& point : after) JoinPoint(*stream, point);
    }
  }
  return CUDA_SUCCESS;
}
