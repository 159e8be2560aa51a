// Libraries: charged in each context where they are loaded, before a launch can load them.
#include "memory/libraries.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <vector>

#include "compute/gate.h"
#include "memory/testing/memory_fixture.h"

namespace tessera::fence {
namespace {

using testing::kMiB;
using testing::LedgerBytes;
using testing::ModulesLoaded;
using testing::SetLimit;

// 14 MiB, as what the fake driver takes.
constexpr char kImage[] = ".version 7.0\n.global .b8 a[12582912];\n";

class Libraries : public testing::MemoryFixture {
 protected:
  static CUlibrary NewLibrary() {
    CUlibrary library = nullptr;
    EXPECT_EQ(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0),
              CUDA_SUCCESS);
    return library;
  }
  static CUkernel KernelOf(CUlibrary library) {
    CUkernel kernel = nullptr;
    EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "k"), CUDA_SUCCESS);
    return kernel;
  }
  static CUresult Launch(CUkernel kernel) {
    return cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr,
                          nullptr, nullptr);
  }
  static void Unload(CUlibrary library) { EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS); }
};

TEST_F(Libraries, KernelsThatAreEnumeratedAreLoadedAtOnce) {
  const CUlibrary library = NewLibrary(), second = NewLibrary();
  CUkernel kernel = nullptr;
  ASSERT_EQ(cuLibraryEnumerateKernels(&kernel, 1, library), CUDA_SUCCESS);
  Same();
  EXPECT_EQ(LedgerBytes(0), base_ + 14 * kMiB);
  SetLimit(0, base_ + 20 * kMiB);
  CUkernel refused = nullptr;
  EXPECT_EQ(cuLibraryEnumerateKernels(&refused, 1, second), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(refused, nullptr);
  EXPECT_EQ(Launch(kernel), CUDA_SUCCESS);
  Same();
  Unload(library);
  Unload(second);
}

TEST_F(Libraries, AKernelLookedUpWithoutAContextIsChargedAtItsLaunch) {
  real::cuCtxSetCurrent(nullptr);
  const CUlibrary library = NewLibrary(), second = NewLibrary();
  const CUkernel kernel = KernelOf(library), other = KernelOf(second);
  OnCard(0);
  SetLimit(0, base_ + 20 * kMiB);
  const int loaded = ModulesLoaded();
  EXPECT_EQ(Launch(kernel), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_ + 14 * kMiB);
  Same();
  EXPECT_EQ(Launch(other), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ModulesLoaded(), loaded + 1) << "only what is launched is loaded";
  Same();
  Unload(library);
  Unload(second);
  Same();
}

TEST_F(Libraries, EachContextIsChargedAndGivesBackItsOwn) {
  const CUlibrary library = NewLibrary();
  const CUkernel kernel = KernelOf(library);
  CUcontext third = nullptr;
  ASSERT_EQ(cuCtxCreate_v4(&third, nullptr, 0, 0), CUDA_SUCCESS);
  const std::uint64_t before = LedgerBytes(0);
  ASSERT_EQ(Launch(kernel), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), before + 14 * kMiB);
  Same();
  ASSERT_EQ(cuCtxDestroy_v2(third), CUDA_SUCCESS);
  EXPECT_EQ(LedgerBytes(0), base_ + 14 * kMiB);
  Same();
  OnCard(0);
  ASSERT_EQ(cuCtxCreate_v4(&third, nullptr, 0, 0), CUDA_SUCCESS);
  SetLimit(0, LedgerBytes(0) + 10 * kMiB);
  EXPECT_EQ(Launch(kernel), CUDA_ERROR_OUT_OF_MEMORY)
      << "what a former context held counts no more";
  Same();
  Unload(library);
  ASSERT_EQ(cuCtxDestroy_v2(third), CUDA_SUCCESS);
  OnCard(0);
}

TEST_F(Libraries, ALaunchIsFreeOnceEveryContextHasWhatMayBeLaunched) {
  EXPECT_FALSE(LaunchesAreWatched()) << "no library";
  const CUlibrary library = NewLibrary();
  EXPECT_FALSE(LaunchesAreWatched()) << "none of its kernels is in the program's hands";
  const CUkernel kernel = KernelOf(library);
  EXPECT_TRUE(LaunchesAreWatched()) << "the other card's context has it not";
  OnCard(1);
  EXPECT_EQ(Launch(kernel), CUDA_SUCCESS);
  EXPECT_FALSE(LaunchesAreWatched());
  Same();
  OnCard(0);
  Unload(library);
  Same();
  EXPECT_FALSE(LaunchesAreWatched());
}

TEST_F(Libraries, AnUnloadThatFailsChangesNothing) {
  const CUlibrary library = NewLibrary();
  KernelOf(library);
  const auto unload = real::cuLibraryUnload;
  real::cuLibraryUnload = [](CUlibrary) { return CUDA_ERROR_ILLEGAL_ADDRESS; };
  EXPECT_EQ(cuLibraryUnload(library), CUDA_ERROR_ILLEGAL_ADDRESS);
  real::cuLibraryUnload = unload;
  EXPECT_EQ(LedgerBytes(0), base_ + 14 * kMiB);
  EXPECT_TRUE(LaunchesAreWatched());
  Unload(library);
  Same();
}

// This process has no driver library: what is seen is what was loaded before.
TEST_F(Libraries, WhatLooksAtAKernelOrPutsItIntoAGraphLoadsItCharged) {
  const auto in = [](CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); };
  const auto node = [&](CUkernel kernel, bool as_function, CUcontext context) {
    CUDA_KERNEL_NODE_PARAMS params{};
    if (as_function) params.func = in(kernel);
    if (!as_function) params.kern = kernel;
    params.ctx = context;
    return params;
  };
  int value = 0;
  CUmodule module = nullptr;
  const std::vector<std::function<CUresult(CUkernel)>> calls = {
      [&](CUkernel k) { return cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, in(k)); },
      [&](CUkernel k) { return cuFuncGetModule(&module, in(k)); },
      [&](CUkernel k) { return cuFuncLoad(in(k)); },
      [&](CUkernel k) { return cuFuncSetCacheConfig(in(k), CU_FUNC_CACHE_PREFER_L1); },
      [&](CUkernel k) { return cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, k, 0); },
      [&](CUkernel k) { return cuKernelSetCacheConfig(k, CU_FUNC_CACHE_PREFER_L1, 0); },
      [&](CUkernel k) { return cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, in(k), 32, 0); },
      [&](CUkernel k) {
        const auto params = node(k, true, nullptr);
        return cuGraphAddKernelNode_v2(nullptr, nullptr, nullptr, 0, &params);
      },
      [&](CUkernel k) {
        const auto params = node(k, false, nullptr);
        return cuGraphKernelNodeSetParams_v2(nullptr, &params);
      },
      [&](CUkernel k) {
        real::cuCtxSetCurrent(nullptr);
        const auto params = node(k, false, context_);
        const CUresult result = cuGraphExecKernelNodeSetParams_v2(nullptr, nullptr, &params);
        OnCard(0);
        return result;
      },
      [&](CUkernel k) {
        CUDA_KERNEL_NODE_PARAMS_v1 params{};
        params.func = in(k);
        return cuGraphAddKernelNode(nullptr, nullptr, nullptr, 0, &params);
      },
      [&](CUkernel k) {
        CUgraphNodeParams params{};
        params.type = CU_GRAPH_NODE_TYPE_KERNEL;
        params.kernel.kern = k;
        return cuGraphAddNode_v2(nullptr, nullptr, nullptr, nullptr, 0, &params);
      },
      [&](CUkernel k) {
        CUgraphNodeParams params{};
        params.type = CU_GRAPH_NODE_TYPE_KERNEL;
        params.kernel.func = in(k);
        return cuGraphExecNodeSetParams(nullptr, nullptr, &params);
      },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    real::cuCtxSetCurrent(nullptr);
    const CUlibrary library = NewLibrary();
    const CUkernel kernel = KernelOf(library);
    OnCard(0);
    SetLimit(0, base_ + 10 * kMiB);
    EXPECT_EQ(calls[i](kernel), CUDA_ERROR_OUT_OF_MEMORY) << i;
    EXPECT_EQ(LedgerBytes(0), base_) << i;
    SetLimit(0, base_ + 20 * kMiB);
    EXPECT_EQ(calls[i](kernel), CUDA_ERROR_STUB_LIBRARY) << i;
    EXPECT_EQ(LedgerBytes(0), base_ + 14 * kMiB) << i;
    Same();
    Unload(library);
  }
}

// As far as the tables reach there is memory; where they had to grow there is none.
TEST_F(Libraries, WhatCannotBeRememberedIsRefused) {
  std::vector<CUlibrary> libraries;
  bool refused = false;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  for (int i = 0; i < 1000 && !refused; ++i) {
    libraries.reserve(libraries.size() + 1);
    rlimit none = before;
    none.rlim_cur = 0;
    CUlibrary library = nullptr;
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
    const CUresult result =
        cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
    if (result == CUDA_SUCCESS) libraries.push_back(library);
    refused = result != CUDA_SUCCESS;
    if (refused) {
      EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
      EXPECT_EQ(library, nullptr);
    }
  }
  EXPECT_TRUE(refused);
  libraries.push_back(NewLibrary());
  KernelOf(libraries.back());
  Same();
  for (const CUlibrary library : libraries) Unload(library);
  Same();
}

}  // namespace
}  // namespace tessera::fence
