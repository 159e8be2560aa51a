#include <functional>
#include <thread>

#include "sim/cuda/testing/sim_device.h"

namespace tessera::sim::testing {
namespace {

class CaptureTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    OK(cuStreamCreate(&a_, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&b_, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&free_, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&other_event_, CU_EVENT_DISABLE_TIMING));
  }
  void Begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    ASSERT_EQ(CUDA_SUCCESS, cuStreamBeginCapture_v2(a_, mode));
  }
  CUresult End(CUstream stream) {
    CUgraph graph{};
    const CUresult result = cuStreamEndCapture(stream, &graph);
    EXPECT_EQ(result == CUDA_SUCCESS, graph != nullptr);
    if (graph != nullptr) cuGraphDestroy(graph);
    return result;
  }

  CUstream a_{}, b_{}, free_{};
  CUevent event_{}, other_event_{};
};

TEST_F(CaptureTest, TableOfErrors) {
  const auto global = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const auto relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  // What a call answers while a_ captures, and what the end of the capture answers after it.
  struct Row {
    const char* name;
    CUstreamCaptureMode mode;
    std::function<CUresult()> call;
    CUresult result, at_end;
  };
  CUdeviceptr memory = 0;
  OK(cuEventRecord(other_event_, b_));
  const CUfunction kernel = Kernel("empty");
  const Row rows[] = {
      {"nothing", global, [] { return CUDA_SUCCESS; }, CUDA_SUCCESS, CUDA_SUCCESS},
      {"synchronize", global, [&] { return cuStreamSynchronize(a_); },
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
      {"query", global, [&] { return cuStreamQuery(a_); }, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
       CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
      {"context synchronize", global, [] { return cuCtxSynchronize(); },
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
      {"allocate", global, [&] { return cuMemAlloc_v2(&memory, 16); },
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
      {"allocate, relaxed", relaxed, [&] { return cuMemAlloc_v2(&memory, 16); }, CUDA_SUCCESS,
       CUDA_SUCCESS},
      {"legacy launch", global,
       [&] { return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); },
       CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
      {"launch elsewhere", global,
       [&] { return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, free_, nullptr, nullptr); },
       CUDA_SUCCESS, CUDA_SUCCESS},
      {"begin again", global, [&] { return cuStreamBeginCapture_v2(a_, global); },
       CUDA_ERROR_ILLEGAL_STATE, CUDA_SUCCESS},
      {"begin on legacy", global, [&] { return cuStreamBeginCapture_v2(nullptr, global); },
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_SUCCESS},
      {"end elsewhere", global,
       [&] {
         CUgraph graph{};
         return cuStreamEndCapture(b_, &graph);
       },
       CUDA_ERROR_ILLEGAL_STATE, CUDA_SUCCESS},
      {"wait for outside", global, [&] { return cuStreamWaitEvent(a_, other_event_, 0); },
       CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
      {"ask captured event", global,
       [&] {
         cuEventRecord(event_, a_);
         return cuEventQuery(event_);
       },
       CUDA_ERROR_CAPTURED_EVENT, CUDA_SUCCESS},
      {"fork without join", global,
       [&] {
         cuEventRecord(event_, a_);
         cuStreamWaitEvent(b_, event_, 0);
         return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, b_, nullptr, nullptr);
       },
       CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_UNJOINED},
      {"merge", global,
       [&] {
         cuStreamBeginCapture_v2(b_, global);
         cuEventRecord(event_, b_);
         const CUresult result = cuStreamWaitEvent(a_, event_, 0);
         End(b_);
         return result;
       },
       CUDA_ERROR_STREAM_CAPTURE_MERGE, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    OK(cuStreamBeginCapture_v2(a_, row.mode));
    EXPECT_EQ(row.result, row.call());
    EXPECT_EQ(row.at_end, End(a_));
    OK(cuStreamSynchronize(a_));
    OK(cuStreamSynchronize(b_));
    OK(cuEventRecord(event_, a_));
  }
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, End(a_));
}

TEST_F(CaptureTest, ForkAndJoinMakeAGraphThatRuns) {
  const CUdeviceptr x = Word(1), y = Word(1);
  Begin();
  Launch("add", x, 1, a_);
  OK(cuEventRecord(event_, a_));
  OK(cuStreamWaitEvent(b_, event_, 0));
  Launch("scale", y, 7, b_);
  CUstreamCaptureStatus status{};
  cuuint64_t id_a = 0, id_b = 0;
  CUgraph graph{};
  const CUgraphNode* nodes = nullptr;
  std::size_t count = 0;
  OK(cuStreamGetCaptureInfo_v2(b_, &status, &id_b, &graph, &nodes, &count));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  EXPECT_EQ(1u, count);
  OK(cuStreamGetCaptureInfo(a_, &status, &id_a));
  EXPECT_EQ(id_a, id_b);
  OK(cuEventRecord(other_event_, b_));
  OK(cuStreamWaitEvent(a_, other_event_, 0));
  Launch("add", x, 10, a_);
  OK(cuStreamEndCapture(a_, &graph));
  OK(cuStreamIsCapturing(b_, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
  EXPECT_EQ(1, Read(x));  // nothing ran while it was captured
  std::size_t edges = 0;
  OK(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  EXPECT_EQ(3u, edges);
  CUgraphExec exec{};
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, a_));
  OK(cuStreamSynchronize(a_));
  EXPECT_EQ(12, Read(x));
  EXPECT_EQ(7, Read(y));
}

TEST_F(CaptureTest, EndOnAnotherStreamOfTheCaptureIsUnmatched) {
  Begin();
  OK(cuEventRecord(event_, a_));
  OK(cuStreamWaitEvent(b_, event_, 0));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, End(b_));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, End(a_));
}

TEST_F(CaptureTest, ModeOfTheThreadDecidesWhatIsForbidden) {
  CUresult from_thread = CUDA_SUCCESS, relaxed_thread = CUDA_SUCCESS;
  CUdeviceptr memory = 0;
  const auto allocate = [&](CUstreamCaptureMode mode, CUresult* result) {
    std::thread([&, mode, result] {
      cuCtxSetCurrent(context_);
      CUstreamCaptureMode exchanged = mode;
      cuThreadExchangeStreamCaptureMode(&exchanged);
      *result = cuMemAlloc_v2(&memory, 16);
    }).join();
  };
  Begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  allocate(CU_STREAM_CAPTURE_MODE_GLOBAL, &from_thread);
  EXPECT_EQ(CUDA_SUCCESS, from_thread);
  EXPECT_EQ(CUDA_SUCCESS, End(a_));

  Begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  allocate(CU_STREAM_CAPTURE_MODE_RELAXED, &relaxed_thread);
  EXPECT_EQ(CUDA_SUCCESS, relaxed_thread);
  allocate(CU_STREAM_CAPTURE_MODE_GLOBAL, &from_thread);
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, from_thread);
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, End(a_));
}

TEST_F(CaptureTest, OnlyTheBeginningThreadEnds) {
  Begin();
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    cuCtxSetCurrent(context_);
    result = End(a_);
  }).join();
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, result);
  EXPECT_EQ(CUDA_SUCCESS, End(a_));
}

TEST_F(CaptureTest, CopiesFillsAndAllocationsBecomeNodes) {
  int out[2] = {};
  Begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CUdeviceptr memory = 0;
  OK(cuMemAllocAsync(&memory, 8, a_));
  OK(cuMemsetD32Async(memory, 9, 2, a_));
  Launch("add", memory, 1, a_);
  OK(cuMemcpyDtoHAsync_v2(out, memory, 8, a_));
  OK(cuMemFreeAsync(memory, a_));
  CUgraph graph{};
  OK(cuStreamEndCapture(a_, &graph));
  std::size_t count = 0;
  OK(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(5u, count);
  CUgraphExec exec{};
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, a_));
  OK(cuStreamSynchronize(a_));
  EXPECT_EQ(10, out[0]);
  EXPECT_EQ(9, out[1]);
}

// The runtime loads code when a kernel is first launched, which may be in a capture.
TEST_F(CaptureTest, CodeWithVariablesIsLoadedInACapture) {
  CUlibrary library{};
  CUkernel kernel{};
  OK(cuLibraryLoadData(&library, kTestPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&kernel, library, "empty"));
  Begin();
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, a_, nullptr,
                    nullptr));
  EXPECT_EQ(CUDA_SUCCESS, End(a_));
  OK(cuLibraryUnload(library));
}

TEST_F(CaptureTest, DependenciesCanBeReplaced) {
  const CUdeviceptr x = Word(1);
  Begin();
  Launch("add", x, 1, a_);
  OK(cuStreamUpdateCaptureDependencies(a_, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  Launch("add", x, 1, a_);
  CUgraph graph{};
  OK(cuStreamEndCapture(a_, &graph));
  std::size_t edges = 1;
  OK(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  EXPECT_EQ(0u, edges);
}

}  // namespace
}  // namespace tessera::sim::testing
