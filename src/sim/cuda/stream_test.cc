#include <atomic>
#include <thread>
#include <vector>

#include "sim/cuda/testing/sim_device.h"
#include "sim/state/node_state.h"

namespace tessera::sim::testing {
namespace {

class StreamTest : public DeviceTest {
 protected:
  CUstream Stream(unsigned flags = CU_STREAM_DEFAULT) {
    CUstream stream{};
    EXPECT_EQ(CUDA_SUCCESS, cuStreamCreate(&stream, flags));
    return stream;
  }
  CUevent Event(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent event{};
    EXPECT_EQ(CUDA_SUCCESS, cuEventCreate(&event, flags));
    return event;
  }
  float Between(CUevent start, CUevent end) {
    float ms = -1;
    EXPECT_EQ(CUDA_SUCCESS, cuEventSynchronize(end));
    EXPECT_EQ(CUDA_SUCCESS, cuEventElapsedTime_v2(&ms, start, end));
    return ms;
  }
  const float record_ms_ = 0.0025f;  // the node's event_record_ns
};

TEST_F(StreamTest, HundredLaunchesTakeHundredTimesAsLong) {
  const CUstream stream = Stream();
  const CUevent start = Event(), end = Event();
  Launch("k5ms", stream);  // so that what follows is queued, whatever the machine does meanwhile
  OK(cuEventRecord(start, stream));
  for (int i = 0; i < 100; ++i) Launch("k100us", stream);
  OK(cuEventRecord(end, stream));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(end));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  EXPECT_FLOAT_EQ(10.0f + record_ms_, Between(start, end));
  OK(cuStreamSynchronize(stream));
  OK(cuStreamQuery(stream));
}

TEST_F(StreamTest, LaunchBlocksWhenTheQueueIsFull) {
  const CUstream stream = Stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr flag = Word(0);
  const int depth = static_cast<int>(Node()->costs.launch_queue_depth);
  OK(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));  // takes the first place
  const CUfunction kernel = Kernel("empty");
  std::atomic<int> launched{0};
  std::thread launcher([&] {
    cuCtxSetCurrent(context_);
    for (int i = 0; i < depth + 10; ++i) {
      if (cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == CUDA_SUCCESS)
        launched.fetch_add(1);
    }
  });
  while (launched.load() < depth - 1) std::this_thread::yield();
  SleepUntil(NowNs() + 20'000'000);
  EXPECT_EQ(depth - 1, launched.load());
  Poke(flag, 1);
  launcher.join();
  EXPECT_EQ(depth + 10, launched.load());
  OK(cuStreamSynchronize(stream));
}

TEST_F(StreamTest, LaunchBlocksBehindRunningKernelsToo) {
  const CUstream stream = Stream();
  const int depth = static_cast<int>(Node()->costs.launch_queue_depth);
  Launch("k5ms", stream);
  for (int i = 1; i < depth; ++i) Launch("empty", stream);
  // The place of the first kernel is needed now: this call returns when that kernel, and so the
  // others, are done.
  Launch("empty", stream);
  EXPECT_EQ(CUDA_SUCCESS, cuStreamQuery(stream));
}

TEST_F(StreamTest, EventOrdersTwoStreams) {
  const CUstream a = Stream(CU_STREAM_NON_BLOCKING), b = Stream(CU_STREAM_NON_BLOCKING);
  const CUevent a_done = Event(), b_done = Event();
  Launch("k5ms", a);
  OK(cuEventRecord(a_done, a));
  OK(cuStreamWaitEvent(b, a_done, 0));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
  Launch("k100us", b);
  OK(cuEventRecord(b_done, b));
  EXPECT_FLOAT_EQ(0.1f + record_ms_, Between(a_done, b_done));
}

TEST_F(StreamTest, DefaultStreamIsABarrierForBlockingStreamsOnly) {
  const CUstream blocking = Stream(), free = Stream(CU_STREAM_NON_BLOCKING);
  const CUevent first = Event(), legacy = Event(), after = Event(), other = Event();
  Launch("k5ms", blocking);
  OK(cuEventRecord(first, blocking));
  OK(cuEventRecord(legacy, nullptr));
  OK(cuEventRecord(after, blocking));
  OK(cuEventRecord(other, free));
  OK(cuEventSynchronize(other));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(legacy));
  EXPECT_FLOAT_EQ(record_ms_, Between(first, legacy));
  EXPECT_FLOAT_EQ(record_ms_, Between(legacy, after));
}

TEST_F(StreamTest, PerThreadStreamsAreDistinctAndBlocking) {
  unsigned long long own = 0, other = 0, again = 0;
  OK(cuStreamGetId(CU_STREAM_PER_THREAD, &own));
  std::thread([&] {
    cuCtxSetCurrent(context_);
    cuStreamGetId(CU_STREAM_PER_THREAD, &other);
  }).join();
  OK(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
  EXPECT_EQ(own, again);
  EXPECT_NE(own, other);
  EXPECT_NE(0u, other);
}

TEST_F(StreamTest, HostFunctionRunsInOrderAndHoldsWhatFollows) {
  const CUstream stream = Stream();
  const CUdeviceptr word = Word(3);
  struct Seen {
    CUdeviceptr word;
    int value;
  } seen{word, 0};
  Launch("add", word, 4, stream);
  OK(cuLaunchHostFunc(
      stream,
      [](void* data) {
        auto* at = static_cast<Seen*>(data);
        at->value = *reinterpret_cast<int*>(at->word);
      },
      &seen));
  Launch("scale", word, 10, stream);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(7, seen.value);
  EXPECT_EQ(70, Read(word));
}

TEST_F(StreamTest, HostFunctionIsNotEarly) {
  const CUstream stream = Stream();
  std::uint64_t ran_ns = 0;
  const std::uint64_t begun = NowNs();
  Launch("k5ms", stream);
  OK(cuLaunchHostFunc(
      stream, [](void* data) { *static_cast<std::uint64_t*>(data) = NowNs(); }, &ran_ns));
  OK(cuStreamSynchronize(stream));
  EXPECT_GE(ran_ns, begun + 5'000'000);
}

TEST_F(StreamTest, CallbackGetsStreamAndStatus) {
  const CUstream stream = Stream();
  struct Got {
    CUstream stream;
    CUresult status;
  } got{nullptr, CUDA_ERROR_UNKNOWN};
  OK(cuStreamAddCallback(
      stream,
      [](CUstream handle, CUresult status, void* data) {
        *static_cast<Got*>(data) = {handle, status};
      },
      &got, 0));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(stream, got.stream);
  EXPECT_EQ(CUDA_SUCCESS, got.status);
}

TEST_F(StreamTest, WaitHoldsAStreamUntilTheHostWrites) {
  const CUstream stream = Stream();
  unsigned* word = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&word), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  *word = 0;
  CUdeviceptr address = 0;
  OK(cuMemHostGetDevicePointer_v2(&address, word, 0));
  const CUdeviceptr result = Word(1);
  OK(cuStreamWaitValue32_v2(stream, address, 5, CU_STREAM_WAIT_VALUE_GEQ));
  Launch("add", result, 1, stream);
  const CUevent after = Event();
  OK(cuEventRecord(after, stream));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(after));
  EXPECT_EQ(1, *reinterpret_cast<volatile int*>(result));
  __atomic_store_n(word, 5, __ATOMIC_RELEASE);
  OK(cuEventSynchronize(after));
  EXPECT_EQ(2, Read(result));
}

TEST_F(StreamTest, WriteIsSeenAtItsTimeAndLetsAnotherStreamGo) {
  const CUstream writer = Stream(CU_STREAM_NON_BLOCKING), waiter = Stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr flag = Word(0);
  const CUevent released = Event();
  for (int i = 0; i < 20; ++i)
    Launch("k5ms", writer);  // longer than a sanitizer takes to the query below
  OK(cuStreamWriteValue32_v2(writer, flag, 9, 0));
  OK(cuStreamWaitValue32_v2(waiter, flag, 9, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuEventRecord(released, waiter));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(released));
  OK(cuStreamSynchronize(writer));
  EXPECT_EQ(9, *reinterpret_cast<volatile int*>(flag));
  OK(cuEventSynchronize(released));
}

TEST_F(StreamTest, CopyAfterAWriteSeesIt) {
  const CUstream stream = Stream();
  const CUdeviceptr flag = Word(0);
  int* seen = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&seen), sizeof(int), 0));
  Launch("k1ms", stream);
  OK(cuStreamWriteValue32_v2(stream, flag, 6, 0));
  OK(cuMemcpyDtoHAsync_v2(seen, flag, sizeof(int), stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(6, *seen);
}

TEST_F(StreamTest, ContextEndsThoughAStreamWaitsForEver) {
  const CUstream stream = Stream();
  const CUdeviceptr flag = Word(0);
  OK(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  Launch("k100us", stream);
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  OK(cuDevicePrimaryCtxReset_v2(0));
  OK(cuDevicePrimaryCtxRetain(&context_, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
}

// Two streams that wait one after the other, one of them destroyed, in a context of its own.
TEST_F(StreamTest, CreatedContextEndsThoughItsStreamsWaitForEver) {
  CUcontext own{};
  OK(cuCtxCreate_v2(&own, 0, 0));
  const CUstream a = Stream(CU_STREAM_NON_BLOCKING), b = Stream(CU_STREAM_NON_BLOCKING);
  const CUevent a_done = Event();
  const CUdeviceptr flag = Word(0);
  OK(cuStreamWaitValue32_v2(a, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuEventRecord(a_done, a));
  OK(cuStreamWaitEvent(b, a_done, 0));
  OK(cuStreamWaitValue32_v2(b, flag, 2, CU_STREAM_WAIT_VALUE_EQ));  // still waits when `a` is done
  OK(cuMemsetD32Async(flag, 7, 1, b));
  OK(cuStreamDestroy_v2(b));
  OK(cuCtxDestroy_v2(own));
  OK(cuCtxSetCurrent(context_));
}

TEST_F(StreamTest, ContextEndsThoughAnotherContextHoldsItUp) {
  const CUstream waiting = Stream();
  const CUevent never = Event();
  const CUdeviceptr flag = Word(0);
  OK(cuStreamWaitValue32_v2(waiting, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuEventRecord(never, waiting));
  CUcontext own{};
  OK(cuCtxCreate_v2(&own, 0, 0));
  OK(cuStreamWaitEvent(Stream(), never, 0));
  OK(cuCtxDestroy_v2(own));
  OK(cuCtxSetCurrent(context_));
  Poke(flag, 1);
  OK(cuStreamSynchronize(waiting));
}

TEST_F(StreamTest, EndingContextRunsItsHostFunctions) {
  CUcontext own{};
  OK(cuCtxCreate_v2(&own, 0, 0));
  static std::atomic<int> ran{0};
  ran = 0;
  const CUstream stream = Stream();
  for (int i = 0; i < 2; ++i) {
    const CUhostFn slow = [](void*) {
      SleepUntil(NowNs() + 2'000'000);
      ran.fetch_add(1);
    };
    OK(cuLaunchHostFunc(stream, slow, nullptr));
  }
  OK(cuCtxDestroy_v2(own));
  EXPECT_EQ(2, ran.load());
  OK(cuCtxSetCurrent(context_));
}

TEST_F(StreamTest, ModuleIsUnloadedThoughAStreamWaitsForEver) {
  CUmodule module{};
  CUdeviceptr table = 0;
  OK(cuModuleLoadData(&module, kTestPtx));
  OK(cuModuleGetGlobal_v2(&table, nullptr, module, "table"));
  const CUstream stream = Stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr flag = Word(0), copied = Word(0);
  OK(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuMemcpyDtoDAsync_v2(copied, table + 2 * sizeof(int), sizeof(int), stream));
  OK(cuModuleUnload(module));
  Poke(flag, 1);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(3, Read(copied));  // the variable's memory was there still
}

TEST_F(StreamTest, DestroyedStreamsWorkIsWaitedFor) {
  const CUstream stream = Stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr word = Word(0);
  Launch("k5ms", stream);
  OK(cuStreamWriteValue32_v2(stream, word, 3, 0));
  OK(cuStreamDestroy_v2(stream));
  OK(cuCtxSynchronize());
  EXPECT_EQ(3, Read(word));
}

TEST_F(StreamTest, BadHandlesAndValuesAreRefused) {
  const auto nonsense = reinterpret_cast<CUstream>(0x1230);
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(nonsense));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(nonsense));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(reinterpret_cast<CUevent>(0x1230)));
  CUstream stream{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 0x80));
  stream = Stream();
  OK(cuStreamDestroy_v2(stream));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
  const CUevent untimed = Event(CU_EVENT_DISABLE_TIMING), timed = Event();
  OK(cuEventRecord(untimed, nullptr));
  OK(cuEventRecord(timed, nullptr));
  OK(cuCtxSynchronize());
  float ms = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&ms, untimed, timed));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2(nullptr, Word() + 1, 0, 0));
}

TEST_F(StreamTest, ContextSynchronizeWaitsForEveryStream) {
  const CUstream a = Stream(), b = Stream(CU_STREAM_NON_BLOCKING);
  Launch("k1ms", a);
  Launch("k5ms", b);
  OK(cuCtxSynchronize());
  OK(cuStreamQuery(a));
  OK(cuStreamQuery(b));
}

}  // namespace
}  // namespace tessera::sim::testing
