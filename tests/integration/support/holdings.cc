#include "tests/integration/support/holdings.h"

namespace tessera::testing {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kMostHeld = 24;

constexpr char kModule[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 16 .b8 holdings_global[3145728];
.visible .entry holdings_kernel() { ret; }
)";

CUmemAllocationProp OnCard() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  return prop;
}

}  // namespace

Holdings::Holdings(CUcontext context, std::uint64_t seed) : context_(context), random_(seed) {
  DRIVER(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING);
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  DRIVER(cuMemPoolCreate)(&pool_, &props);
}

std::uint64_t Holdings::RandomBytes() {
  switch (random_() % 4) {
    case 0:
      return 1 + random_() % 4096;
    case 1:
      return 1 + random_() % kMiB;
    default:
      return 1 + random_() % (48 * kMiB);
  }
}

CUresult Holdings::Step() {
  std::uint64_t choice = random_() % 100;
  if (choice < 4) {
    std::size_t free = 0, total = 0;
    return DRIVER(cuMemGetInfo_v2)(&free, &total);
  }
  if (choice < 6) return DRIVER(cuMemPoolTrimTo)(pool_, 0);
  if (choice < 8) return DRIVER(cuDeviceGraphMemTrim)(0);
  if (!held_.empty() && (held_.size() >= kMostHeld || choice < 52)) {
    return GiveBack(random_() % held_.size());
  }
  auto what = static_cast<What>(random_() % kWhats);
  // Contexts and modules are dear; keep them rare.
  if ((what == What::kContext || what == What::kModule) && random_() % 6 != 0) what = What::kLinear;
  return Take(what);
}

CUresult Holdings::Take(What what) {
  Held held{.what = what, .bytes = RandomBytes()};
  CUresult result = CUDA_SUCCESS;
  switch (what) {
    case What::kLinear:
      result = DRIVER(cuMemAlloc_v2)(&held.pointer, held.bytes);
      break;
    case What::kPitch: {
      std::size_t pitch = 0;
      result = DRIVER(cuMemAllocPitch_v2)(&held.pointer, &pitch, 1 + held.bytes % 4000,
                                          1 + held.bytes / 4096, 4);
      break;
    }
    case What::kManaged:
      result = DRIVER(cuMemAllocManaged)(&held.pointer, held.bytes, CU_MEM_ATTACH_GLOBAL);
      break;
    case What::kAsync:
      result = DRIVER(cuMemAllocAsync)(&held.pointer, held.bytes, stream_);
      break;
    case What::kFromPool:
      result = DRIVER(cuMemAllocFromPoolAsync)(&held.pointer, held.bytes, pool_, stream_);
      break;
    case What::kVmm:
      result = TakeMapped(held);
      break;
    case What::kArray: {
      CUDA_ARRAY_DESCRIPTOR descriptor{};
      descriptor.Width = 1024;
      descriptor.Height = 1 + held.bytes / 4096;
      descriptor.Format = CU_AD_FORMAT_FLOAT;
      descriptor.NumChannels = 1;
      result = DRIVER(cuArrayCreate_v2)(reinterpret_cast<CUarray*>(&held.handle), &descriptor);
      break;
    }
    case What::kMipmap: {
      CUDA_ARRAY3D_DESCRIPTOR descriptor{};
      descriptor.Width = 512;
      descriptor.Height = 256;
      descriptor.Depth = 1 + random_() % 8;
      descriptor.Format = CU_AD_FORMAT_FLOAT;
      descriptor.NumChannels = 4;
      result = DRIVER(cuMipmappedArrayCreate)(reinterpret_cast<CUmipmappedArray*>(&held.handle),
                                              &descriptor, 3);
      break;
    }
    case What::kGraph:
      result = TakeGraph(held);
      break;
    case What::kModule:
      result = DRIVER(cuModuleLoadData)(reinterpret_cast<CUmodule*>(&held.handle), kModule);
      break;
    case What::kContext:
      result = TakeContext(held);
      break;
  }
  if (result == CUDA_SUCCESS) held_.push_back(held);
  return result;
}

CUresult Holdings::TakeMapped(Held& held) {
  held.bytes = (held.bytes / (2 * kMiB) + 1) * 2 * kMiB;
  CUmemAllocationProp prop = OnCard();
  CUresult result = DRIVER(cuMemCreate)(&held.chunk, held.bytes, &prop, 0);
  if (result != CUDA_SUCCESS) return result;
  result = DRIVER(cuMemAddressReserve)(&held.pointer, held.bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) {
    result = DRIVER(cuMemMap)(held.pointer, held.bytes, 0, held.chunk, 0);
    if (result != CUDA_SUCCESS) DRIVER(cuMemAddressFree)(held.pointer, held.bytes);
  }
  if (result != CUDA_SUCCESS) DRIVER(cuMemRelease)(held.chunk);
  return result;
}

CUresult Holdings::TakeGraph(Held& held) {
  auto* graph = reinterpret_cast<CUgraph*>(&held.handle);
  auto* exec = reinterpret_cast<CUgraphExec*>(&held.second);
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params.bytesize = held.bytes;
  CUgraphNode node = nullptr;
  CUresult result = DRIVER(cuGraphCreate)(graph, 0);
  if (result == CUDA_SUCCESS) {
    result = DRIVER(cuGraphAddMemAllocNode)(&node, *graph, nullptr, 0, &params);
  }
  if (result == CUDA_SUCCESS) result = DRIVER(cuGraphInstantiateWithFlags)(exec, *graph, 0);
  if (result == CUDA_SUCCESS) result = DRIVER(cuGraphLaunch)(*exec, stream_);
  if (result == CUDA_SUCCESS) result = DRIVER(cuStreamSynchronize)(stream_);
  held.pointer = params.dptr;
  if (result != CUDA_SUCCESS) {
    if (*exec != nullptr) DRIVER(cuGraphExecDestroy)(*exec);
    if (*graph != nullptr) DRIVER(cuGraphDestroy)(*graph);
  }
  return result;
}

CUresult Holdings::TakeContext(Held& held) {
  CUresult result = DRIVER(cuCtxCreate_v2)(reinterpret_cast<CUcontext*>(&held.handle), 0, 0);
  if (result == CUDA_SUCCESS) {
    CUcontext popped = nullptr;
    DRIVER(cuCtxPopCurrent_v2)(&popped);
    DRIVER(cuCtxSetCurrent)(context_);
  }
  return result;
}

CUresult Holdings::GiveBack(std::size_t index) {
  Held held = held_[index];
  held_[index] = held_.back();
  held_.pop_back();
  switch (held.what) {
    case What::kLinear:
    case What::kPitch:
    case What::kManaged:
      return DRIVER(cuMemFree_v2)(held.pointer);
    case What::kAsync:
    case What::kFromPool:
      return random_() % 2 == 0 ? DRIVER(cuMemFreeAsync)(held.pointer, stream_)
                                : DRIVER(cuMemFree_v2)(held.pointer);
    case What::kVmm: {
      CUresult result = DRIVER(cuMemUnmap)(held.pointer, held.bytes);
      if (result == CUDA_SUCCESS) result = DRIVER(cuMemAddressFree)(held.pointer, held.bytes);
      CUresult released = DRIVER(cuMemRelease)(held.chunk);
      return result != CUDA_SUCCESS ? result : released;
    }
    case What::kArray:
      return DRIVER(cuArrayDestroy)(static_cast<CUarray>(held.handle));
    case What::kMipmap:
      return DRIVER(cuMipmappedArrayDestroy)(static_cast<CUmipmappedArray>(held.handle));
    case What::kGraph: {
      CUresult result = DRIVER(cuMemFree_v2)(held.pointer);
      DRIVER(cuGraphExecDestroy)(static_cast<CUgraphExec>(held.second));
      DRIVER(cuGraphDestroy)(static_cast<CUgraph>(held.handle));
      return result;
    }
    case What::kModule:
      return DRIVER(cuModuleUnload)(static_cast<CUmodule>(held.handle));
    case What::kContext:
      return DRIVER(cuCtxDestroy_v2)(static_cast<CUcontext>(held.handle));
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult Holdings::DropAll() {
  CUresult first = CUDA_SUCCESS;
  while (!held_.empty()) {
    CUresult result = GiveBack(held_.size() - 1);
    if (first == CUDA_SUCCESS) first = result;
  }
  for (CUresult result : {DRIVER(cuStreamSynchronize)(stream_), DRIVER(cuMemPoolTrimTo)(pool_, 0),
                          DRIVER(cuDeviceGraphMemTrim)(0)}) {
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

}  // namespace tessera::testing
