// Where the slice is meant but cannot be used, no call takes memory: every hook of the driver
// stands in the table below, with the refusal that a program sees or with the reason why it may
// pass.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "contract/policy_view.h"
#include "entry/driver.h"
#include "entry/table.h"
#include "real.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

int g_reached = 0;

// In the place of every hooked function of the driver.
CUresult Reached() {
  ++g_reached;
  return CUDA_SUCCESS;
}

CUresult GetUuid(CUuuid* uuid, CUdevice) {
  std::memset(uuid->bytes, 7, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}
CUresult GetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(64);
  return CUDA_SUCCESS;
}
CUresult GetDeviceOf(CUdevice* device, CUcontext) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult GetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 0;
  return CUDA_SUCCESS;
}
CUresult GetPool(CUmemoryPool* pool, CUdevice) {
  *pool = reinterpret_cast<CUmemoryPool>(96);
  return CUDA_SUCCESS;
}
CUresult NotCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult OneNode(CUgraph, CUgraphNode* nodes, std::size_t* count) {
  if (nodes != nullptr && *count > 0) nodes[0] = reinterpret_cast<CUgraphNode>(128);
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult OfMemory(CUgraphNode, CUgraphNodeType* type) {
  *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  return CUDA_SUCCESS;
}
CUresult MemoryParams(CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  std::memset(params, 0, sizeof *params);
  params->poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params->bytesize = 4 << 20;
  return CUDA_SUCCESS;
}
CUresult GraphAttribute(CUdevice, CUgraphMem_attribute attribute, void* value) {
  // As if another had left room in the graphs' memory: none of it is granted.
  *static_cast<cuuint64_t*>(value) =
      attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? cuuint64_t{64} << 20 : 0;
  return CUDA_SUCCESS;
}
CUresult LibraryOf(CUlibrary* library, CUkernel) {
  *library = reinterpret_cast<CUlibrary>(160);
  return CUDA_SUCCESS;
}
CUresult One(int* value, CUdevice_attribute, CUdevice) {
  *value = 8;
  return CUDA_SUCCESS;
}

struct Row {
  CUresult expected = CUDA_SUCCESS;
  std::function<CUresult()> call;  // empty: passes, for the reason
  const char* reason = "";
};

// What the calls are given. Kept apart from the driver's: nothing of it is looked at.
struct Arguments {
  CUdeviceptr pointer = 0;
  CUdeviceptr_v1 narrow = 0;
  std::size_t pitch = 0;
  unsigned narrow_pitch = 0;
  CUmemoryPool pool = reinterpret_cast<CUmemoryPool>(96);
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop{};
  CUDA_ARRAY_DESCRIPTOR array{128, 128, CU_AD_FORMAT_FLOAT, 1};
  CUDA_ARRAY_DESCRIPTOR_v1 array_v1{128, 128, CU_AD_FORMAT_FLOAT, 1};
  CUDA_ARRAY3D_DESCRIPTOR cube{};
  CUDA_ARRAY3D_DESCRIPTOR_v1 cube_v1{};
  CUarray made_array = nullptr;
  CUmipmappedArray made_mipmap = nullptr;
  CUgraph graph = reinterpret_cast<CUgraph>(192);
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS instantiate{};
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC external{};
  CUexternalMemory made_external = nullptr;
  CUcontext context = nullptr;
  CUgreenCtx green = nullptr;
  CUmodule module = nullptr;
  CUlibrary library = reinterpret_cast<CUlibrary>(160), made_library = nullptr;
  CUkernel kernel = reinterpret_cast<CUkernel>(224), made_kernel = nullptr;
  CUfunction function = nullptr;
  std::size_t bytes = 0;
};

constexpr char kImage[] = ".version 7.0\n";
constexpr char kGives[] = "gives memory back";
constexpr char kNoMore[] = "takes nothing: what it names could not be had";
constexpr char kTells[] = "only tells";

std::map<std::string, Row> Table(Arguments& a) {
  a.prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  a.cube.Width = a.cube.Height = a.cube_v1.Width = a.cube_v1.Height = 128;
  a.cube.Format = a.cube_v1.Format = CU_AD_FORMAT_FLOAT;
  a.cube.NumChannels = a.cube_v1.NumChannels = 1;
  a.external.size = 4 << 20;
  std::map<std::string, Row> t;
  const auto refused = [&t](const char* name, std::function<CUresult()> call) {
    t[name] = {CUDA_ERROR_OUT_OF_MEMORY, std::move(call)};
  };
  const auto passes = [&t](const char* reason, std::initializer_list<const char*> names) {
    for (const char* name : names) t[name] = {CUDA_SUCCESS, {}, reason};
  };
  t["cuInit"] = {CUDA_ERROR_OPERATING_SYSTEM, [] { return cuInit(0); }};
  refused("cuMemAlloc", [&a] { return cuMemAlloc(&a.narrow, 100); });
  refused("cuMemAlloc_v2", [&a] { return cuMemAlloc_v2(&a.pointer, 100); });
  refused("cuMemAllocManaged",
          [&a] { return cuMemAllocManaged(&a.pointer, 4 << 20, CU_MEM_ATTACH_GLOBAL); });
  refused("cuMemAllocPitch",
          [&a] { return cuMemAllocPitch(&a.narrow, &a.narrow_pitch, 100, 100, 4); });
  refused("cuMemAllocPitch_v2",
          [&a] { return cuMemAllocPitch_v2(&a.pointer, &a.pitch, 100, 100, 4); });
  refused("cuMemAllocAsync", [&a] { return cuMemAllocAsync(&a.pointer, 100, nullptr); });
  refused("cuMemAllocAsync_ptsz", [&a] { return cuMemAllocAsync_ptsz(&a.pointer, 100, nullptr); });
  refused("cuMemAllocFromPoolAsync",
          [&a] { return cuMemAllocFromPoolAsync(&a.pointer, 100, a.pool, nullptr); });
  refused("cuMemAllocFromPoolAsync_ptsz",
          [&a] { return cuMemAllocFromPoolAsync_ptsz(&a.pointer, 100, a.pool, nullptr); });
  refused("cuMemCreate", [&a] { return cuMemCreate(&a.handle, 2 << 20, &a.prop, 0); });
  refused("cuArrayCreate", [&a] { return cuArrayCreate(&a.made_array, &a.array_v1); });
  refused("cuArrayCreate_v2", [&a] { return cuArrayCreate_v2(&a.made_array, &a.array); });
  refused("cuArray3DCreate", [&a] { return cuArray3DCreate(&a.made_array, &a.cube_v1); });
  refused("cuArray3DCreate_v2", [&a] { return cuArray3DCreate_v2(&a.made_array, &a.cube); });
  refused("cuMipmappedArrayCreate",
          [&a] { return cuMipmappedArrayCreate(&a.made_mipmap, &a.cube, 2); });
  refused("cuGraphInstantiate",
          [&a] { return cuGraphInstantiate(&a.exec, a.graph, nullptr, nullptr, 0); });
  refused("cuGraphInstantiate_v2",
          [&a] { return cuGraphInstantiate_v2(&a.exec, a.graph, nullptr, nullptr, 0); });
  refused("cuGraphInstantiateWithFlags",
          [&a] { return cuGraphInstantiateWithFlags(&a.exec, a.graph, 0); });
  refused("cuGraphInstantiateWithParams",
          [&a] { return cuGraphInstantiateWithParams(&a.exec, a.graph, &a.instantiate); });
  refused("cuGraphInstantiateWithParams_ptsz",
          [&a] { return cuGraphInstantiateWithParams_ptsz(&a.exec, a.graph, &a.instantiate); });
  refused("cuImportExternalMemory",
          [&a] { return cuImportExternalMemory(&a.made_external, &a.external); });
  refused("cuCtxCreate", [&a] { return cuCtxCreate(&a.context, 0, 0); });
  refused("cuCtxCreate_v2", [&a] { return cuCtxCreate_v2(&a.context, 0, 0); });
  refused("cuCtxCreate_v3", [&a] { return cuCtxCreate_v3(&a.context, nullptr, 0, 0, 0); });
  refused("cuCtxCreate_v4", [&a] { return cuCtxCreate_v4(&a.context, nullptr, 0, 0); });
  refused("cuDevicePrimaryCtxRetain", [&a] { return cuDevicePrimaryCtxRetain(&a.context, 0); });
  refused("cuGreenCtxCreate", [&a] { return cuGreenCtxCreate(&a.green, nullptr, 0, 0); });
  refused("cuCtxSetLimit", [] { return cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 << 20); });
  refused("cuModuleLoad", [&a] { return cuModuleLoad(&a.module, "/nowhere"); });
  refused("cuModuleLoadData", [&a] { return cuModuleLoadData(&a.module, kImage); });
  refused("cuModuleLoadDataEx",
          [&a] { return cuModuleLoadDataEx(&a.module, kImage, 0, nullptr, nullptr); });
  refused("cuModuleLoadFatBinary", [&a] { return cuModuleLoadFatBinary(&a.module, kImage); });
  refused("cuLibraryLoadData", [&a] {
    return cuLibraryLoadData(&a.made_library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0);
  });
  refused("cuLibraryLoadFromFile", [&a] {
    return cuLibraryLoadFromFile(&a.made_library, "/nowhere", nullptr, nullptr, 0, nullptr, nullptr,
                                 0);
  });
  refused("cuLibraryGetModule", [&a] { return cuLibraryGetModule(&a.module, a.library); });
  refused("cuLibraryGetGlobal",
          [&a] { return cuLibraryGetGlobal(&a.pointer, &a.bytes, a.library, "g"); });
  refused("cuLibraryGetManaged",
          [&a] { return cuLibraryGetManaged(&a.pointer, &a.bytes, a.library, "m"); });
  refused("cuLibraryGetKernel",
          [&a] { return cuLibraryGetKernel(&a.made_kernel, a.library, "k"); });
  refused("cuLibraryGetUnifiedFunction", [&a] {
    void* function = nullptr;
    return cuLibraryGetUnifiedFunction(&function, a.library, "f");
  });
  refused("cuLibraryEnumerateKernels",
          [&a] { return cuLibraryEnumerateKernels(&a.made_kernel, 1, a.library); });
  refused("cuKernelGetFunction", [&a] { return cuKernelGetFunction(&a.function, a.kernel); });
  passes(kGives, {"cuMemFree",
                  "cuMemFree_v2",
                  "cuMemFreeAsync",
                  "cuMemFreeAsync_ptsz",
                  "cuMemPoolDestroy",
                  "cuMemPoolTrimTo",
                  "cuMemPoolSetAttribute",
                  "cuMemRelease",
                  "cuMemUnmap",
                  "cuMulticastUnbind",
                  "cuArrayDestroy",
                  "cuMipmappedArrayDestroy",
                  "cuDeviceGraphMemTrim",
                  "cuGraphExecDestroy",
                  "cuDestroyExternalMemory",
                  "cuCtxDestroy",
                  "cuCtxDestroy_v2",
                  "cuCtxDetach",
                  "cuDevicePrimaryCtxRelease",
                  "cuDevicePrimaryCtxRelease_v2",
                  "cuDevicePrimaryCtxReset",
                  "cuDevicePrimaryCtxReset_v2",
                  "cuGreenCtxDestroy",
                  "cuModuleUnload",
                  "cuLibraryUnload"});
  passes(kNoMore, {"cuCtxAttach", "cuMemMap", "cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz",
                   "cuMemExportToShareableHandle", "cuMemRetainAllocationHandle",
                   "cuMulticastBindAddr", "cuMulticastBindMem", "cuGraphLaunch",
                   "cuGraphLaunch_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz"});
  passes("an empty frame: what is to be in it is refused",
         {"cuMemPoolCreate", "cuMemPoolImportFromShareableHandle", "cuMulticastCreate"});
  passes("needs a function of a module, which is refused",
         {"cuFuncGetAttribute",
          "cuFuncSetAttribute",
          "cuFuncGetModule",
          "cuFuncGetName",
          "cuFuncGetParamInfo",
          "cuFuncIsLoaded",
          "cuFuncLoad",
          "cuFuncSetCacheConfig",
          "cuFuncSetSharedMemConfig",
          "cuFuncSetBlockShape",
          "cuFuncSetSharedSize",
          "cuKernelGetAttribute",
          "cuKernelSetAttribute",
          "cuKernelSetCacheConfig",
          "cuOccupancyAvailableDynamicSMemPerBlock",
          "cuOccupancyMaxActiveBlocksPerMultiprocessor",
          "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
          "cuOccupancyMaxActiveClusters",
          "cuOccupancyMaxPotentialBlockSize",
          "cuOccupancyMaxPotentialBlockSizeWithFlags",
          "cuOccupancyMaxPotentialClusterSize",
          "cuGraphAddKernelNode",
          "cuGraphKernelNodeSetParams",
          "cuGraphExecKernelNodeSetParams",
          "cuGraphAddKernelNode_v2",
          "cuGraphKernelNodeSetParams_v2",
          "cuGraphExecKernelNodeSetParams_v2",
          "cuGraphAddNode",
          "cuGraphAddNode_v2",
          "cuGraphNodeSetParams",
          "cuGraphExecNodeSetParams",
          "cuLaunch",
          "cuLaunchGrid",
          "cuLaunchGridAsync",
          "cuLaunchKernel",
          "cuLaunchKernel_ptsz",
          "cuLaunchKernelEx",
          "cuLaunchKernelEx_ptsz",
          "cuLaunchCooperativeKernel",
          "cuLaunchCooperativeKernel_ptsz",
          "cuLaunchCooperativeKernelMultiDevice"});
  passes(kTells,
         {"cuGetProcAddress", "cuGetProcAddress_v2", "cuCtxSynchronize", "cuCtxSynchronize_v2",
          "cuEventSynchronize", "cuStreamSynchronize", "cuStreamSynchronize_ptsz",
          "cuDeviceTotalMem", "cuDeviceTotalMem_v2", "cuMemGetInfo", "cuMemGetInfo_v2"});
  return t;
}

// In a child, whose slice is found once: 0, or what is wrong on stderr.
int TryAll() {
  for (EntryIndex entry = 0; entry < EntryCount(); ++entry) {
    if (EntryLibrary(entry) == Library::kCuda && IsHooked(entry))
      AdoptFunction(entry, reinterpret_cast<void*>(&Reached));
  }
  real::cuDeviceGetUuid_v2 = GetUuid;
  real::cuCtxGetCurrent = GetCurrent;
  real::cuCtxGetDevice_v2 = GetDeviceOf;
  real::cuDevicePrimaryCtxGetState = GetState;
  real::cuDeviceGetMemPool = GetPool;
  real::cuStreamIsCapturing = NotCapturing;
  real::cuStreamIsCapturing_ptsz = NotCapturing;
  real::cuGraphGetNodes = OneNode;
  real::cuGraphNodeGetType = OfMemory;
  real::cuGraphMemAllocNodeGetParams = MemoryParams;
  real::cuDeviceGetGraphMemAttribute = GraphAttribute;
  real::cuKernelGetLibrary = LibraryOf;
  real::cuDeviceGetAttribute = One;
  if (AttachSlice() != Mode::kRefused || SliceProblem()[0] == '\0') {
    std::fprintf(stderr, "the slice is not refused\n");
    return 1;
  }
  Arguments arguments;
  const std::map<std::string, Row> table = Table(arguments);
  std::size_t hooks = 0;
  int wrong = 0;
  for (EntryIndex entry = 0; entry < EntryCount(); ++entry) {
    if (EntryLibrary(entry) != Library::kCuda || !IsHooked(entry)) continue;
    ++hooks;
    const auto row = table.find(EntryName(entry));
    if (row == table.end()) {
      std::fprintf(stderr, "%s is hooked and has no row here\n", EntryName(entry));
      ++wrong;
      continue;
    }
    if (!row->second.call) continue;
    g_reached = 0;
    const CUresult result = row->second.call();
    if (result == row->second.expected && g_reached == 0) continue;
    std::fprintf(stderr, "%s: %d instead of %d, the driver was reached %d times\n",
                 EntryName(entry), result, row->second.expected, g_reached);
    ++wrong;
  }
  // What gives back or tells reaches the driver, and comes back from it.
  CUmemPoolProps props{};
  for (const auto& call : std::initializer_list<std::function<CUresult()>>{
           [] { return cuMemFree_v2(4096); }, [] { return cuMemFreeAsync(4096, nullptr); },
           [] { return cuMemRelease(5); }, [] { return cuMemUnmap(4096, 4096); },
           [&] { return cuArrayDestroy(reinterpret_cast<CUarray>(&arguments)); },
           [&] { return cuDestroyExternalMemory(reinterpret_cast<CUexternalMemory>(&arguments)); },
           [] { return cuCtxDestroy_v2(reinterpret_cast<CUcontext>(64)); },
           [] { return cuDevicePrimaryCtxRelease_v2(0); },
           [] { return cuDevicePrimaryCtxReset_v2(0); }, [] { return cuGreenCtxDestroy(nullptr); },
           [] { return cuModuleUnload(nullptr); }, [] { return cuLibraryUnload(nullptr); },
           [&] { return cuMemPoolCreate(&arguments.pool, &props); },
           [] { return cuMemPoolDestroy(reinterpret_cast<CUmemoryPool>(96)); },
           [] { return cuGraphExecDestroy(nullptr); }, [] { return cuDeviceGraphMemTrim(0); },
           [] { return cuCtxSynchronize(); },
           [&] { return cuMemGetInfo_v2(&arguments.bytes, &arguments.pitch); }}) {
    g_reached = 0;
    if (call() == CUDA_SUCCESS && g_reached == 1) continue;
    std::fprintf(stderr, "a call that gives back did not reach the driver once\n");
    ++wrong;
  }
  if (hooks != table.size()) {
    std::fprintf(stderr, "%zu rows for %zu hooks\n", table.size(), hooks);
    ++wrong;
  }
  return wrong == 0 ? 0 : 1;
}

void WritePolicy(const std::string& path, std::uint32_t layout) {
  static contract::PolicyFile policy;
  contract::PolicyHeader& h = policy.header;
  h.magic = contract::kPolicyMagic;
  h.layout = layout;
  h.file_bytes = sizeof policy;
  h.cards_offset = offsetof(contract::PolicyFile, cards);
  h.card_stride = sizeof(contract::PolicyCard);
  h.card_count = 1;
  h.gates_offset = offsetof(contract::PolicyFile, gates);
  h.gate_stride = sizeof(contract::PolicyGate);
  contract::PolicyCard& card = policy.cards[0];
  std::memset(card.uuid, 7, sizeof card.uuid);
  card.limit_bytes = card.ceiling_bytes = std::uint64_t{1} << 30;
  card.compute_percent = 100;
  std::ofstream(path).write(reinterpret_cast<const char*>(&policy), sizeof policy);
}

class RefusedCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tessera-refused-calls-XXXXXX";
    directory_ = mkdtemp(name);
  }
  void TearDown() override {
    unlink((directory_ + "/policy").c_str());
    unlink((directory_ + "/ledger").c_str());
    rmdir(directory_.c_str());
  }
  static void AllRefused(const char* variable, const std::string& value) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      setenv(variable, value.c_str(), 1);
      _exit(TryAll());
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0) << "what is wrong stands above";
  }
  std::string directory_;
};

TEST_F(RefusedCalls, ByALedgerThatIsNone) {
  WritePolicy(directory_ + "/policy", contract::kPolicyLayout);
  std::ofstream(directory_ + "/ledger") << std::string(4096, 'x');
  AllRefused("TESSERA_SLICE_DIR", directory_);
}

TEST_F(RefusedCalls, ByAPolicyOfAFutureVersion) {
  WritePolicy(directory_ + "/policy", contract::kPolicyLayout + 1);
  AllRefused("TESSERA_SLICE_DIR", directory_);
}

TEST_F(RefusedCalls, ByAVariableThatSaysNothing) {
  AllRefused("CUDA_DEVICE_MEMORY_LIMIT_0", "2GB");
  AllRefused("CUDA_DEVICE_MEMORY_LIMIT_16", "2g");
}

}  // namespace
}  // namespace tessera::fence
