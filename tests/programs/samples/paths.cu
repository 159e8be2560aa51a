// Takes card memory by one path, piece by piece, until it is refused; says what it got and gives
// everything back.
//
//   paths PATH [PIECE_MIB] [HOLD]
//
// PATH is one of the names in kPaths below. With HOLD (a file name) it stays, holding what it has,
// until that file is gone. One JSON object on stdout; exit 0 when the refusal was an out-of-memory
// and all figures agree with themselves.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr int kMostPieces = 1 << 20;

// What one attempt gave: an error name ("" = granted) and how to give it back.
struct Piece {
  std::string error;
  std::function<void()> release = [] {};
};

using Take = std::function<Piece(std::size_t bytes)>;

std::string Name(cudaError_t code) {
  cudaGetLastError();  // a refusal is no sticky error: the next call must work
  return code == cudaSuccess ? "" : cudaGetErrorName(code);
}

void* Driver(const char* symbol) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW);
  return library ? dlsym(library, symbol) : nullptr;
}

std::string Name(CUresult code) {
  if (code == CUDA_SUCCESS) return "";
  const char* text = nullptr;
  auto* name = reinterpret_cast<PFN_cuGetErrorName_v6000>(Driver("cuGetErrorName"));
  if (name) name(code, &text);
  return text ? text : "CUresult " + std::to_string(static_cast<int>(code));
}

Piece Linear(void* memory, cudaError_t code) {
  return {Name(code), [memory] { cudaFree(memory); }};
}

Take RuntimeMalloc() {
  return [](std::size_t bytes) {
    void* memory = nullptr;
    cudaError_t code = cudaMalloc(&memory, bytes);
    return Linear(memory, code);
  };
}

Take Pitch() {
  return [](std::size_t bytes) {
    void* memory = nullptr;
    std::size_t pitch = 0;
    cudaError_t code = cudaMallocPitch(&memory, &pitch, kMiB, bytes / kMiB);
    return Linear(memory, code);
  };
}

Take Managed() {
  return [](std::size_t bytes) {
    void* memory = nullptr;
    cudaError_t code = cudaMallocManaged(&memory, bytes);
    return Linear(memory, code);
  };
}

Take Async() {
  return [](std::size_t bytes) -> Piece {
    void* memory = nullptr;
    cudaError_t code = cudaMallocAsync(&memory, bytes, nullptr);
    return {Name(code), [memory] { cudaFreeAsync(memory, nullptr); }};
  };
}

Take Pool() {
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  static cudaMemPool_t pool = nullptr;
  cudaMemPoolCreate(&pool, &props);
  return [](std::size_t bytes) -> Piece {
    void* memory = nullptr;
    cudaError_t code = cudaMallocFromPoolAsync(&memory, bytes, pool, nullptr);
    return {Name(code), [memory] { cudaFreeAsync(memory, nullptr); }};
  };
}

// The three ways to the driver's own cuMemAlloc.
Take ByPointer(void* allocate) {
  auto* take = reinterpret_cast<PFN_cuMemAlloc_v3020>(allocate);
  auto* give = reinterpret_cast<PFN_cuMemFree_v3020>(Driver("cuMemFree_v2"));
  return [take, give](std::size_t bytes) -> Piece {
    if (!take || !give) return {"no entry point"};
    CUdeviceptr memory = 0;
    CUresult code = take(&memory, bytes);
    return {Name(code), [give, memory] { give(memory); }};
  };
}

Take Dlsym() { return ByPointer(Driver("cuMemAlloc_v2")); }

Take ProcAddress() {
  auto* find = reinterpret_cast<PFN_cuGetProcAddress_v12000>(Driver("cuGetProcAddress_v2"));
  void* entry = nullptr;
  if (find) find("cuMemAlloc", &entry, 12000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr);
  return ByPointer(entry);
}

Take EntryPoint() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 12000, cudaEnableDefault, &found);
  return ByPointer(entry);
}

Take Vmm() {
  return [](std::size_t bytes) -> Piece {
    auto* reserve = reinterpret_cast<PFN_cuMemAddressReserve_v10020>(Driver("cuMemAddressReserve"));
    auto* create = reinterpret_cast<PFN_cuMemCreate_v10020>(Driver("cuMemCreate"));
    auto* map = reinterpret_cast<PFN_cuMemMap_v10020>(Driver("cuMemMap"));
    auto* access = reinterpret_cast<PFN_cuMemSetAccess_v10020>(Driver("cuMemSetAccess"));
    auto* unmap = reinterpret_cast<PFN_cuMemUnmap_v10020>(Driver("cuMemUnmap"));
    auto* release = reinterpret_cast<PFN_cuMemRelease_v10020>(Driver("cuMemRelease"));
    auto* give_address = reinterpret_cast<PFN_cuMemAddressFree_v10020>(Driver("cuMemAddressFree"));
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle = 0;
    CUresult code = create(&handle, bytes, &prop, 0);
    if (code != CUDA_SUCCESS) return {Name(code)};
    CUdeviceptr address = 0;
    code = reserve(&address, bytes, 0, 0, 0);
    if (code == CUDA_SUCCESS) code = map(address, bytes, 0, handle, 0);
    CUmemAccessDesc desc = {};
    desc.location = prop.location;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (code == CUDA_SUCCESS) code = access(address, bytes, &desc, 1);
    release(handle);  // the mapping keeps the memory: what counts is the last of the two
    return {Name(code), [=] {
              unmap(address, bytes);
              give_address(address, bytes);
            }};
  };
}

// One graph with one allocation that outlives its launch, per piece.
Take Graph() {
  return [](std::size_t bytes) -> Piece {
    cudaGraph_t graph = nullptr;
    cudaError_t code = cudaGraphCreate(&graph, 0);
    if (code != cudaSuccess) return {Name(code)};
    cudaMemAllocNodeParams params = {};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    params.bytesize = bytes;
    cudaGraphNode_t node;
    code = cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params);
    cudaGraphExec_t exec = nullptr;
    if (code == cudaSuccess) code = cudaGraphInstantiate(&exec, graph, 0);
    if (code == cudaSuccess) code = cudaGraphLaunch(exec, nullptr);
    if (code == cudaSuccess) code = cudaDeviceSynchronize();
    std::string error = Name(code);
    void* memory = params.dptr;
    if (!error.empty()) {
      if (exec) cudaGraphExecDestroy(exec);
      cudaGraphDestroy(graph);
    }
    return {error, [=] {
              cudaFree(memory);
              cudaGraphExecDestroy(exec);
              cudaGraphDestroy(graph);
            }};
  };
}

Take Array() {
  return [](std::size_t bytes) -> Piece {
    cudaArray_t array = nullptr;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
    cudaError_t code = cudaMallocArray(&array, &format, 4096, bytes / (4096 * sizeof(float4)));
    return {Name(code), [array] { cudaFreeArray(array); }};
  };
}

Take Mipmap() {
  return [](std::size_t bytes) -> Piece {
    cudaMipmappedArray_t array = nullptr;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
    cudaError_t code = cudaMallocMipmappedArray(
        &array, &format, make_cudaExtent(4096, bytes / (4096 * sizeof(float4)), 0), 1);
    return {Name(code), [array] { cudaFreeMipmappedArray(array); }};
  };
}

const std::pair<const char*, Take (*)()> kPaths[] = {
    {"malloc", RuntimeMalloc},
    {"pitch", Pitch},
    {"managed", Managed},
    {"async", Async},
    {"pool", Pool},
    {"dlsym", Dlsym},
    {"gpa", ProcAddress},
    {"entrypoint", EntryPoint},
    {"vmm", Vmm},
    {"graph", Graph},
    {"array", Array},
    {"mipmap", Mipmap},
};

struct Info {
  std::size_t free = 0, total = 0;
};

Info MemInfo() {
  Info info;
  cudaMemGetInfo(&info.free, &info.total);
  return info;
}

// What pools and graphs keep for later is given back too, so that "after" can be compared with
// "before".
void TrimAll() {
  cudaDeviceSynchronize();
  cudaMemPool_t pool;
  if (cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess) cudaMemPoolTrimTo(pool, 0);
  cudaDeviceGraphMemTrim(0);
  cudaGetLastError();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "";
  const std::size_t piece = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 256) * kMiB;
  const char* hold = argc > 3 ? argv[3] : nullptr;
  Take take;
  for (const auto& [name, make] : kPaths) {
    if (path != name) continue;
    cudaError_t ready =
        cudaFree(nullptr);  // the context comes first, so that it is in both figures
    if (ready != cudaSuccess) {
      std::printf("{\"path\":\"%s\",\"error\":\"%s\"}\n", name, cudaGetErrorName(ready));
      return 1;
    }
    take = make();
  }
  if (!take) {
    std::fprintf(stderr, "paths: no path '%s'; there are:", path.c_str());
    for (const auto& [name, make] : kPaths) std::fprintf(stderr, " %s", name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  TrimAll();
  const Info before = MemInfo();
  std::vector<std::function<void()>> held;
  std::string error;
  while (error.empty() && held.size() < kMostPieces) {
    Piece got = take(piece);
    error = got.error;
    if (error.empty()) held.push_back(std::move(got.release));
  }
  const Info full = MemInfo();
  if (hold) {
    std::printf("holding %zu\n", held.size() * piece / kMiB);
    std::fflush(stdout);
    while (access(hold, F_OK) == 0) usleep(5000);
  }
  const std::size_t pieces = held.size();
  for (auto& release : held) release();
  TrimAll();
  const Info after = MemInfo();
  std::printf(
      "{\"path\":\"%s\",\"piece_mib\":%zu,\"pieces\":%zu,\"held_mib\":%zu,\"error\":\"%s\",\"total_"
      "mib\":%zu,"
      "\"free_before\":%zu,\"free_full\":%zu,\"free_after\":%zu}\n",
      path.c_str(), piece / kMiB, pieces, pieces * piece / kMiB, error.c_str(), before.total / kMiB,
      before.free, full.free, after.free);
  const bool oom = error == "cudaErrorMemoryAllocation" || error == "CUDA_ERROR_OUT_OF_MEMORY";
  return oom && before.total == after.total ? 0 : 1;
}
