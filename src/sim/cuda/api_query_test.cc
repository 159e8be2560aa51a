// Questions to the driver, and settings: devices, contexts, functions, libraries, links.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "sim/cuda/testing/sim_device.h"

namespace tessera::sim::testing {
namespace {

using QueryTest = DeviceTest;

TEST_F(QueryTest, Devices) {
  int value = -1, major = 0, minor = 0;
  unsigned old_bytes = 0, mask = 0;
  std::size_t bytes = 0, elements = 0;
  CUdevice device = -1;
  OK(cuDeviceGet(&device, 1));
  EXPECT_EQ(1, device);
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
  OK(cuDeviceTotalMem_v2(&bytes, 0));
  OK(cuDeviceTotalMem(&old_bytes, 0));
  EXPECT_EQ(std::min<std::size_t>(bytes, 0xFFFFFFFF), old_bytes) << "as much as 32 bits can say";
  OK(cuDeviceComputeCapability(&major, &minor, 0));
  EXPECT_EQ(86, major * 10 + minor);
  CUdevprop properties{};
  OK(cuDeviceGetProperties(&properties, 0));
  EXPECT_EQ(1024, properties.maxThreadsPerBlock);
  char luid[8];
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuDeviceGetLuid(luid, &mask, 0)) << "Windows only";
  OK(cuDeviceGetTexture1DLinearMaxWidth(&elements, CU_AD_FORMAT_FLOAT, 4, 0));
  EXPECT_NE(0u, elements);
  OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  EXPECT_EQ(1, value);
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE,
            cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  OK(cuDeviceGetExecAffinitySupport(&value, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
  EXPECT_EQ(0, value) << "needs MPS";
  const CUatomicOperation add = CU_ATOMIC_OPERATION_INTEGER_ADD;
  unsigned can = 7;
  OK(cuDeviceGetHostAtomicCapabilities(&can, &add, 1, 0));
  EXPECT_EQ(0u, can) << "not over PCIe";
  OK(cuDeviceGetP2PAtomicCapabilities(&can, &add, 1, 0, 1));
  EXPECT_EQ(0u, can);
}

TEST_F(QueryTest, ContextSettings) {
  CUfunc_cache cache{};
  OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  OK(cuCtxGetCacheConfig(&cache));
  EXPECT_EQ(CU_FUNC_CACHE_PREFER_L1, cache);
  CUsharedconfig shared{};
  OK(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
  OK(cuCtxGetSharedMemConfig(&shared));
  EXPECT_EQ(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE, shared);
  unsigned flags = 0;
  OK(cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
  OK(cuCtxGetFlags(&flags));
  EXPECT_TRUE(flags & CU_CTX_SYNC_MEMOPS);
  int least = 1, greatest = 1;
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(0, least);
  EXPECT_EQ(-5, greatest);
  OK(cuCtxResetPersistingL2Cache());
  CUexecAffinityParam affinity{};
  EXPECT_EQ(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
            cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
  OK(cuCtxSynchronize_v2(context_));
  CUcontext popped{};
  OK(cuCtxPushCurrent(context_));
  OK(cuCtxPopCurrent(&popped));
  EXPECT_EQ(context_, popped);
  OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_YIELD));
  int active = 0;
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(unsigned{CU_CTX_SCHED_YIELD}, flags);
  EXPECT_EQ(1, active);
  OK(cuDevicePrimaryCtxSetFlags(0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDevicePrimaryCtxSetFlags_v2(0, ~0u));
}

TEST_F(QueryTest, ContextEvents) {
  CUevent event{};
  OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  CUstream stream{};
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Launch("k1ms", stream);
  OK(cuCtxRecordEvent(context_, event));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  OK(cuCtxWaitEvent(context_, event));
  OK(cuEventSynchronize(event));
  OK(cuStreamQuery(stream));
  OK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE,
            cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL))
      << "not capturing";
}

TEST_F(QueryTest, Functions) {
  const CUfunction scale = Kernel("scale");
  CUmodule module{};
  OK(cuFuncGetModule(&module, scale));
  EXPECT_EQ(module_, module);
  OK(cuFuncLoad(scale));
  CUfunctionLoadingState state{};
  OK(cuFuncIsLoaded(&state, scale));
  EXPECT_EQ(CU_FUNCTION_LOADING_STATE_LOADED, state);
  OK(cuFuncSetCacheConfig(scale, CU_FUNC_CACHE_PREFER_SHARED));
  OK(cuFuncSetSharedMemConfig(scale, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  int blocks = 0, grid = 0, block = 0, size = 0;
  std::size_t bytes = 0;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, scale, 128, 0, 0));
  EXPECT_EQ(12, blocks) << "1,536 threads of an 8.6 card";
  OK(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, scale, nullptr, 0, 0, 0));
  EXPECT_EQ(128, block) << "maxntid";
  OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, scale, 1, 128));
  EXPECT_GE(bytes, 48u << 10);
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 128;
  config.blockDimY = config.blockDimZ = 1;
  EXPECT_EQ(CUDA_ERROR_INVALID_CLUSTER_SIZE,
            cuOccupancyMaxPotentialClusterSize(&size, scale, &config))
      << "from 9.0 on";
  OK(cuOccupancyMaxActiveClusters(&size, scale, &config));
  EXPECT_GT(size, 0);
}

TEST_F(QueryTest, Modules) {
  CUmoduleLoadingMode mode{};
  OK(cuModuleGetLoadingMode(&mode));
  EXPECT_EQ(CU_MODULE_LAZY_LOADING, mode);
  CUtexref texture{};
  CUsurfref surface{};
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&texture, module_, "t"));
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuModuleGetSurfRef(&surface, module_, "t"));
  CUdeviceptr_v1 low = 0;
  unsigned size = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuModuleGetGlobal(&low, &size, module_, "table"))
      << "lies above 4 GiB";
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&low, &size, module_, "none"));
}

TEST_F(QueryTest, Libraries) {
  CUlibrary library{};
  OK(cuLibraryLoadData(&library, kTestPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  OK(cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(6u, count);
  std::vector<CUkernel> kernels(count);
  OK(cuLibraryEnumerateKernels(kernels.data(), count, library));
  const char* name = nullptr;
  OK(cuKernelGetName(&name, kernels[0]));
  EXPECT_STREQ("add", name);
  std::size_t offset = 7, size = 0;
  OK(cuKernelGetParamInfo(kernels[0], 1, &offset, &size));
  EXPECT_EQ(8u, offset);
  EXPECT_EQ(4u, size);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuKernelGetParamInfo(kernels[0], 2, &offset, &size));
  int shared = 0;
  OK(cuKernelGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernels[0], 0));
  EXPECT_EQ(256, shared);
  OK(cuKernelSetCacheConfig(kernels[0], CU_FUNC_CACHE_PREFER_L1, 0));
  void* function = nullptr;
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuLibraryGetUnifiedFunction(&function, library, "f"));
  OK(cuLibraryUnload(library));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuKernelGetName(&name, kernels[0]));
}

TEST_F(QueryTest, LinkInEveryForm) {
  CUlinkState state{};
  void* image = nullptr;
  std::size_t size = 0;
  const std::string path = "/tmp/simcuda-link-" + std::to_string(getpid()) + ".ptx";
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(nullptr, file);
  std::fputs(kTestPtx, file);
  std::fclose(file);
  OK(cuLinkCreate(0, nullptr, nullptr, &state));
  OK(cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(kTestPtx), std::strlen(kTestPtx) + 1,
                   "text", 0, nullptr, nullptr));
  OK(cuLinkComplete(state, &image, &size));
  CUmodule module{};
  OK(cuModuleLoadData(&module, image));
  OK(cuModuleUnload(module));
  OK(cuLinkDestroy(state));
  OK(cuLinkCreate_v2(0, nullptr, nullptr, &state));
  OK(cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, path.c_str(), 0, nullptr, nullptr));
  OK(cuLinkComplete(state, &image, &size));
  OK(cuLinkDestroy(state));
  OK(cuLinkCreate_v2(0, nullptr, nullptr, &state));
  OK(cuLinkAddFile(state, CU_JIT_INPUT_PTX, path.c_str(), 0, nullptr, nullptr));
  EXPECT_EQ(CUDA_ERROR_FILE_NOT_FOUND,
            cuLinkAddFile(state, CU_JIT_INPUT_PTX, "/nonexistent/x", 0, nullptr, nullptr));
  OK(cuLinkDestroy(state));
  EXPECT_EQ(0, unlink(path.c_str()));
}

// The function carries its parameters and shape.
TEST_F(QueryTest, LaunchesOfTheFirstInterface) {
  CUdeviceptr word = Word(1);
  const CUfunction add = Kernel("add");
  OK(cuFuncSetBlockShape(add, 1, 1, 1));
  OK(cuFuncSetSharedSize(add, 0));
  OK(cuParamSetSize(add, 12));
  OK(cuParamSetv(add, 0, &word, sizeof word));
  OK(cuParamSeti(add, 8, 5));
  OK(cuLaunch(add));
  OK(cuLaunchGrid(add, 1, 1));
  CUstream stream{};
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  OK(cuLaunchGridAsync(add, 1, 1, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(16, Read(word));
  OK(cuParamSetf(add, 8, 1.0f));
  OK(cuParamSetTexRef(add, CU_PARAM_TR_DEFAULT, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape(add, 0, 1, 1));
}

TEST_F(QueryTest, LaunchWithAttributes) {
  CUstream stream{};
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr word = Word(1);
  int value = 2;
  void* params[] = {&word, &value};
  CUlaunchAttribute priority{};
  priority.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  priority.value.priority = -1;
  CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, stream, &priority, 1};
  OK(cuLaunchKernelEx(&config, Kernel("add"), params, nullptr));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(3, Read(word));
  config.blockDimX = 2048;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(&config, Kernel("add"), params, nullptr));
  OK(cuStreamDestroy(stream));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(stream));
}

TEST_F(QueryTest, CooperativeLaunchOnSeveralDevices) {
  CUstream stream{};
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUDA_LAUNCH_PARAMS launch{};
  launch.function = Kernel("empty");
  launch.gridDimX = launch.gridDimY = launch.gridDimZ = 1;
  launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1;
  launch.hStream = stream;
  OK(cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(nullptr, 1, 0));
}

TEST_F(QueryTest, CoredumpSettings) {
  bool on = false, set = true;
  std::size_t size = sizeof on;
  OK(cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &on, &size));
  const bool before = on;
  size = sizeof set;
  OK(cuCoredumpSetAttribute(CU_COREDUMP_LIGHTWEIGHT, &set, &size));
  OK(cuCoredumpGetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &on, &size));
  EXPECT_TRUE(on);
  set = before;
  OK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &set, &size));
  size = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuCoredumpSetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &set, &size));
}

TEST_F(QueryTest, CheckpointIsRestoredByTheMainThread) {
  int thread = 0;
  OK(cuCheckpointProcessGetRestoreThreadId(getpid(), &thread));
  EXPECT_EQ(getpid(), thread);
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessGetRestoreThreadId(getppid(), &thread));
}

}  // namespace
}  // namespace tessera::sim::testing
