#include "sim/cuda/testing/sim_device.h"

#include <cstdlib>

extern "C" {
__attribute__((visibility("default"))) void simkernel_add(void** params) {
  **static_cast<int**>(params[0]) += *static_cast<int*>(params[1]);
}
__attribute__((visibility("default"))) void simkernel_scale(void** params) {
  **static_cast<int**>(params[0]) *= *static_cast<int*>(params[1]);
}
}

namespace tessera::sim::testing {

const char kTestPtx[] = R"(
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b32 table[64] = {1, 2, 3, 4};
.visible .entry empty() { ret; }
.visible .entry k100us() { ret; }
.visible .entry k1ms() { ret; }
.visible .entry k5ms() { ret; }
.visible .entry add(.param .u64 add_param_0, .param .u32 add_param_1)
{ .shared .align 4 .b8 s[256]; ret; }
.visible .entry scale(.param .u64 scale_param_0, .param .u32 scale_param_1)
.maxntid 128, 1, 1
{ ret; }
)";

TestNode& Node() {
  static auto* node = [] {
    setenv("TESSERA_SIM_KERNELS", "empty:0,k100us:100,k1ms:1000,k5*:5000,add:10,scale:10", 1);
    auto* made = new TestNode(2);
    if (cuInit(0) != CUDA_SUCCESS) std::abort();
    return made;
  }();
  return *node;
}

void DeviceTest::SetUp() {
  Node();
  OK(cuDevicePrimaryCtxRetain(&context_, 0));
  OK(cuCtxSetCurrent(context_));
  OK(cuModuleLoadData(&module_, kTestPtx));
}

void DeviceTest::TearDown() { EXPECT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2(0)); }

CUfunction DeviceTest::Kernel(const char* name) {
  CUfunction function{};
  EXPECT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&function, module_, name));
  return function;
}

void DeviceTest::Launch(const char* name, CUstream stream) {
  EXPECT_EQ(CUDA_SUCCESS,
            cuLaunchKernel(Kernel(name), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
}

void DeviceTest::Launch(const char* name, CUdeviceptr word, int value, CUstream stream) {
  void* params[] = {&word, &value};
  EXPECT_EQ(CUDA_SUCCESS,
            cuLaunchKernel(Kernel(name), 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
}

CUdeviceptr DeviceTest::Word(int value) {
  CUdeviceptr word = 0;
  EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc_v2(&word, sizeof(int)));
  EXPECT_EQ(CUDA_SUCCESS, cuMemcpyHtoD_v2(word, &value, sizeof(value)));
  return word;
}

void DeviceTest::Poke(CUdeviceptr word, int value) {
  __atomic_store_n(reinterpret_cast<int*>(word), value, __ATOMIC_RELEASE);
}

int DeviceTest::Read(CUdeviceptr word) {
  int value = 0;
  EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH_v2(&value, word, sizeof(value)));
  return value;
}

}  // namespace tessera::sim::testing
