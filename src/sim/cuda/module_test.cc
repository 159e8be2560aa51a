#include <cstdio>
#include <string>
#include <vector>

#include "sim/cuda/testing/sim_device.h"
#include "sim/state/node_state.h"

namespace tessera::sim::testing {
namespace {

using ModuleTest = DeviceTest;

TEST_F(ModuleTest, FunctionsByName) {
  CUfunction function{};
  OK(cuModuleGetFunction(&function, module_, "add"));
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module_, "absent"));
  const char* name = nullptr;
  OK(cuFuncGetName(&name, Kernel("scale")));
  EXPECT_STREQ("scale", name);
  unsigned count = 0;
  OK(cuModuleGetFunctionCount(&count, module_));
  EXPECT_EQ(6u, count);
  std::vector<CUfunction> all(count);
  OK(cuModuleEnumerateFunctions(all.data(), count, module_));
  for (CUfunction each : all) OK(cuFuncGetName(&name, each));
}

TEST_F(ModuleTest, AttributesComeFromTheCode) {
  int value = 0;
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, Kernel("scale")));
  EXPECT_EQ(128, value);
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, Kernel("add")));
  EXPECT_EQ(256, value);
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, Kernel("add")));
  EXPECT_EQ(80, value);
  std::size_t offset = 0, size = 0;
  OK(cuFuncGetParamInfo(Kernel("add"), 1, &offset, &size));
  EXPECT_EQ(8u, offset);
  EXPECT_EQ(4u, size);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(Kernel("add"), 2, &offset, &size));
}

TEST_F(ModuleTest, VariablesHoldTheirFirstContent) {
  CUdeviceptr table = 0;
  std::size_t bytes = 0;
  OK(cuModuleGetGlobal_v2(&table, &bytes, module_, "table"));
  EXPECT_EQ(256u, bytes);
  int values[5] = {};
  OK(cuMemcpyDtoH_v2(values, table, sizeof(values)));
  EXPECT_EQ(1, values[0]);
  EXPECT_EQ(4, values[3]);
  EXPECT_EQ(0, values[4]);
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&table, &bytes, module_, "absent"));
}

TEST_F(ModuleTest, MemoryIsGivenBackAtUnload) {
  std::string big = std::string(kTestPtx) + ".global .align 4 .b8 heap[8388608];\n";
  std::size_t before = 0, during = 0, after = 0, total = 0;
  OK(cuMemGetInfo_v2(&before, &total));
  CUmodule module{};
  OK(cuModuleLoadData(&module, big.c_str()));
  OK(cuMemGetInfo_v2(&during, &total));
  EXPECT_GE(before - during, 8u << 20);
  OK(cuModuleUnload(module));
  OK(cuMemGetInfo_v2(&after, &total));
  EXPECT_EQ(before, after);
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
}

TEST_F(ModuleTest, WrongImagesAreRefusedWithTheDriversCode) {
  CUmodule module{};
  EXPECT_EQ(CUDA_ERROR_NO_BINARY_FOR_GPU,
            cuModuleLoadData(&module, ".version 8.0\n.target sm_120\n"));
  EXPECT_EQ(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&module, "this is no code"));
  const unsigned char garbage[64] = {0xFF, 0xFE, 0x01};
  EXPECT_EQ(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, garbage));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, nullptr));
  EXPECT_EQ(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nonexistent/code.ptx"));
}

TEST_F(ModuleTest, LibraryKernelIsTakenAsAFunction) {
  CUlibrary library{};
  OK(cuLibraryLoadData(&library, kTestPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel{};
  OK(cuLibraryGetKernel(&kernel, library, "add"));
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&kernel, library, "absent"));
  CUdeviceptr word = Word(1);
  int value = 41;
  void* params[] = {&word, &value};
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, params,
                    nullptr));
  EXPECT_EQ(42, Read(word));
  CUlibrary home{};
  OK(cuKernelGetLibrary(&home, kernel));
  EXPECT_EQ(library, home);
  CUfunction function{};
  OK(cuKernelGetFunction(&function, kernel));
  OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536, kernel, 0));
  int set = 0;
  OK(cuFuncGetAttribute(&set, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  EXPECT_EQ(65536, set);
  unsigned count = 0;
  OK(cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(6u, count);
  OK(cuLibraryUnload(library));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1,
                                                      1, 1, 1, 0, nullptr, params, nullptr));
}

TEST_F(ModuleTest, LinkedCodeLoads) {
  CUlinkState link{};
  OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char*>(kTestPtx),
                      std::string(kTestPtx).size() + 1, "a", 0, nullptr, nullptr));
  std::string more = ".version 8.0\n.target sm_80\n.entry extra(.param .f32 p) { ret; }\n";
  OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, more.data(), more.size() + 1, "b", 0, nullptr,
                      nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_PTX,
            cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char*>("junk"), 5, "c", 0, nullptr,
                             nullptr));
  void* image = nullptr;
  std::size_t size = 0;
  OK(cuLinkComplete(link, &image, &size));
  CUmodule module{};
  OK(cuModuleLoadData(&module, image));
  OK(cuLinkDestroy(link));
  CUfunction function{};
  OK(cuModuleGetFunction(&function, module, "extra"));
  OK(cuModuleGetFunction(&function, module, "add"));
  std::size_t offset = 0, bytes = 0;
  OK(cuFuncGetParamInfo(function, 1, &offset, &bytes));
  EXPECT_EQ(8u, offset);
  CUdeviceptr table = 0;
  OK(cuModuleGetGlobal_v2(&table, &bytes, module, "table"));
  EXPECT_EQ(2, reinterpret_cast<int*>(table)[1]);
}

TEST_F(ModuleTest, LaunchesAreChecked) {
  const CUfunction empty = Kernel("empty");
  const auto launch = [&](CUfunction function, unsigned grid, unsigned block, unsigned shared) {
    return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(CUDA_SUCCESS, launch(empty, 1, 1024, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch(empty, 0, 1, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch(empty, 1, 1025, 0));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, launch(Kernel("scale"), 1, 256, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch(empty, 1, 1, 48 * 1024 + 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, launch(reinterpret_cast<CUfunction>(0x1230), 1, 1, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(empty, 1, 65536, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  OK(cuFuncSetAttribute(empty, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 99 * 1024));
  EXPECT_EQ(CUDA_SUCCESS, launch(empty, 1, 1, 99 * 1024));
  EXPECT_EQ(
      CUDA_ERROR_INVALID_VALUE,
      cuFuncSetAttribute(empty, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 99 * 1024 + 1));
  EXPECT_EQ(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            cuLaunchCooperativeKernel(empty, 1 << 20, 1, 1, 1024, 1, 1, 0, nullptr, nullptr));
}

TEST_F(ModuleTest, PackedAndOldParametersReachTheKernel) {
  CUdeviceptr word = Word(2);
  struct {
    CUdeviceptr word;
    int factor;
  } packed{word, 5};
  std::size_t size = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(Kernel("scale"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(10, Read(word));
  const CUfunction old = Kernel("add");
  OK(cuFuncSetBlockShape(old, 32, 1, 1));
  OK(cuParamSetv(old, 0, &word, sizeof(word)));
  OK(cuParamSeti(old, 8, 7));
  OK(cuParamSetSize(old, 12));
  OK(cuLaunchGrid(old, 2, 1));
  EXPECT_EQ(17, Read(word));
}

TEST_F(ModuleTest, OccupancyFollowsTheCardsLimits) {
  int blocks = 0;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Kernel("empty"), 256, 0));
  EXPECT_EQ(6, blocks);  // 1,536 threads a multiprocessor at compute capability 8.6
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Kernel("empty"), 32, 24 * 1024));
  EXPECT_EQ(4, blocks);  // 100 KiB of shared memory, 1 KiB of each block the system's
  int grid = 0, block = 0;
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, Kernel("empty"), nullptr, 0, 0));
  EXPECT_EQ(0, 1536 % block);
  EXPECT_GT(grid, 0);
}

}  // namespace
}  // namespace tessera::sim::testing
