// Several processes on one card. No test here calls the driver in the parent: children of a process
// that did may not.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "sim/cuda/testing/sim_device.h"
#include "sim/state/node_state.h"

namespace tessera::sim::testing {
namespace {

bool Begin(CUfunction* function) {
  CUcontext context{};
  CUmodule module{};
  return cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
         cuCtxSetCurrent(context) == CUDA_SUCCESS &&
         cuModuleLoadData(&module, kTestPtx) == CUDA_SUCCESS &&
         cuModuleGetFunction(function, module, "k100us") == CUDA_SUCCESS;
}

TEST(StreamProcessesTest, TwoProcessesShareACardBySlices) {
  TestNode node(1);
  const auto burn = [] {
    setenv("TESSERA_SIM_KERNELS", "k100us:100", 1);
    CUfunction function{};
    if (!Begin(&function)) return false;
    for (int i = 0; i < 500; ++i) {
      if (cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS)
        return false;
    }
    return cuCtxSynchronize() == CUDA_SUCCESS;
  };
  const std::uint64_t begun = NowNs();
  const pid_t one = Start(burn), two = Start(burn);
  EXPECT_TRUE(Join(one));
  EXPECT_TRUE(Join(two));
  // Twice 50 ms of kernels on one engine cannot be over in less than 100 ms.
  EXPECT_GE(NowNs() - begun, 100'000'000u);
}

TEST(StreamProcessesTest, EventOfAnotherProcessIsWaitedFor) {
  TestNode node(1);
  struct Shared {
    CUipcEventHandle handle;
    std::atomic<int> stage;
  };
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto reached = [shared](int stage) {
    for (int i = 0; i < 20'000 && shared->stage.load() < stage; ++i) usleep(1000);
    return shared->stage.load() >= stage;
  };
  const pid_t owner = Start([&] {
    setenv("TESSERA_SIM_KERNELS", "k100us:50000", 1);
    CUfunction function{};
    CUevent event{};
    if (!Begin(&function) ||
        cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS ||
        cuIpcGetEventHandle(&shared->handle, event) != CUDA_SUCCESS ||
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS ||
        cuEventRecord(event, nullptr) != CUDA_SUCCESS) {
      return false;
    }
    shared->stage = 1;
    return reached(2) && cuEventQuery(event) == CUDA_SUCCESS;
  });
  const pid_t other = Start([&] {
    CUfunction function{};
    CUevent event{};
    CUstream stream{};
    if (!Begin(&function) || !reached(1) ||
        cuIpcOpenEventHandle(&event, shared->handle) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        cuStreamWaitEvent(stream, event, 0) != CUDA_SUCCESS ||
        cuStreamSynchronize(stream) != CUDA_SUCCESS) {
      return false;
    }
    const bool done =
        cuEventQuery(event) == CUDA_SUCCESS && cuEventSynchronize(event) == CUDA_SUCCESS;
    shared->stage = 2;
    return done;
  });
  EXPECT_TRUE(Join(other));
  EXPECT_TRUE(Join(owner));
  munmap(shared, sizeof(Shared));
}

}  // namespace
}  // namespace tessera::sim::testing
