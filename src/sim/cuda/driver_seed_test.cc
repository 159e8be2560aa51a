// One program, one seed: the same faults hit the same calls, and simulated time goes the same way.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "sim/cuda/testing/driver.h"

namespace tessera::sim {
namespace {

constexpr char kPtx[] = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry first() { ret; }
.visible .entry other() { ret; }
)";

// Writes down which of 300 allocations fail by chance, and how long queued kernels last.
int Records(const std::string& path) {
  std::ofstream out(path);
  AddFault("cuMemAlloc_v2", -1, CUDA_ERROR_OUT_OF_MEMORY, 0, 300, 0, 0);
  CUcontext context{};
  CUmodule module{};
  CUstream stream{};
  if (CU(cuInit)(0) || CU(cuCtxCreate_v2)(&context, 0, 0) || CU(cuModuleLoadData)(&module, kPtx) ||
      CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING))
    return 2;
  for (int i = 0; i < 300; ++i) {
    CUdeviceptr pointer = 0;
    out << (CU(cuMemAlloc_v2)(&pointer, 4096) == CUDA_SUCCESS ? '.' : 'x');
  }
  CUfunction first{}, other{};
  CUevent events[12] = {};
  if (CU(cuModuleGetFunction)(&first, module, "first") ||
      CU(cuModuleGetFunction)(&other, module, "other"))
    return 3;
  for (CUevent& event : events) CU(cuEventCreate)(&event, CU_EVENT_DEFAULT);
  // The first kernel is so long that all that follows is queued behind it, whatever the machine
  // does meanwhile.
  CU(cuLaunchKernel)(first, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  for (CUevent event : events) {
    CU(cuEventRecord)(event, stream);
    for (int i = 0; i < 5; ++i)
      CU(cuLaunchKernel)(other, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  }
  if (CU(cuStreamSynchronize)(stream)) return 4;
  for (int i = 1; i < 12; ++i) {
    float ms = 0;
    if (CU(cuEventElapsedTime_v2)(&ms, events[0], events[i])) return 5;
    out << ' ' << ms;
  }
  return out.good() ? 0 : 6;
}
const AddChild records("seed-records", Records);

std::string RunWith(std::uint64_t seed) {
  const std::string base = "/tmp/simcuda-seed-" + std::to_string(getpid());
  NodeDescription node = DefaultNode(1);
  node.seed = seed;
  EXPECT_EQ(CreateNode(base.c_str(), node), 0);
  EXPECT_EQ(RunAgain("seed-records", base + ".out",
                     {std::string(kEnvNodePath) + "=" + base,
                      "TESSERA_SIM_KERNELS=first:400000,other:123.5"}),
            0);
  std::stringstream text;
  text << std::ifstream(base + ".out").rdbuf();
  unlink(base.c_str());
  unlink((base + ".out").c_str());
  return text.str();
}

TEST(Seed, MakesRunsRepeat) {
  const std::string one = RunWith(7);
  EXPECT_NE(one.find('x'), std::string::npos);
  EXPECT_NE(one.find('.'), std::string::npos);
  EXPECT_EQ(one, RunWith(7));
  EXPECT_NE(one.substr(0, 300), RunWith(8).substr(0, 300));
}

}  // namespace
}  // namespace tessera::sim
