// Streams' settings, and their memory operations in every form.
#include <cstring>

#include "sim/cuda/testing/sim_device.h"

namespace tessera::sim::testing {
namespace {

using StreamSettingsTest = DeviceTest;

TEST_F(StreamSettingsTest, ComeBack) {
  CUstream stream{};
  OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -3));
  int priority = 0;
  unsigned flags = 0;
  OK(cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(-3, priority);
  OK(cuStreamGetFlags(stream, &flags));
  EXPECT_EQ(unsigned{CU_STREAM_NON_BLOCKING}, flags);
  CUdevice device = -1;
  OK(cuStreamGetDevice(stream, &device));
  EXPECT_EQ(0, device);
  CUcontext context{};
  OK(cuStreamGetCtx(stream, &context));
  EXPECT_EQ(context_, context);
  CUgreenCtx green{};
  OK(cuStreamGetGreenCtx(stream, &green));
  EXPECT_EQ(nullptr, green);
  OK(cuStreamGetCtx_v2(stream, &context, &green));
  EXPECT_EQ(context_, context);
}

TEST_F(StreamSettingsTest, AttributesAreCopied) {
  CUstream a{}, b{};
  OK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
  OK(cuStreamCreate(&b, CU_STREAM_DEFAULT));
  CUstreamAttrValue set{}, got{};
  set.syncPolicy = CU_SYNC_POLICY_YIELD;
  OK(cuStreamSetAttribute(a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &set));
  OK(cuStreamCopyAttributes(b, a));
  OK(cuStreamGetAttribute(b, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
  EXPECT_EQ(CU_SYNC_POLICY_YIELD, got.syncPolicy);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuStreamGetAttribute(b, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got))
      << "of launches only";
}

TEST_F(StreamSettingsTest, ManagedMemoryIsAttached) {
  CUstream stream{};
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  CUdeviceptr managed = 0;
  OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_HOST));
  OK(cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_SINGLE));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(stream, managed, 0, 7));
}

TEST_F(StreamSettingsTest, MemoryOperationsInEveryForm) {
  CUstream writes{}, waits{};
  OK(cuStreamCreate(&writes, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
  CUdeviceptr word = 0;
  OK(cuMemAlloc_v2(&word, 16));
  OK(cuMemsetD8_v2(word, 0, 16));
  const std::uint64_t large = std::uint64_t{1} << 40;
  OK(cuStreamWaitValue64_v2(waits, word, large, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(waits));
  OK(cuStreamWriteValue64_v2(writes, word, large + 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  OK(cuStreamSynchronize(waits));
  OK(cuStreamWaitValue64(waits, word, 2, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuStreamWriteValue64(writes, word, 2, CU_STREAM_WRITE_VALUE_DEFAULT));
  OK(cuStreamSynchronize(waits));
  OK(cuStreamWaitValue32(waits, word, 4, CU_STREAM_WAIT_VALUE_AND));
  OK(cuStreamWriteValue32(writes, word, 6, CU_STREAM_WRITE_VALUE_DEFAULT));
  OK(cuStreamSynchronize(waits));
  CUstreamBatchMemOpParams ops[2]{};
  ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ops[0].writeValue.address = word;
  ops[0].writeValue.value = 9;
  ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  ops[1].waitValue.address = word;
  ops[1].waitValue.value = 9;
  ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  OK(cuStreamBatchMemOp_v2(writes, 2, ops, 0));
  OK(cuStreamSynchronize(writes));
  EXPECT_EQ(9, Read(word));
  ops[0].writeValue.value = ops[1].waitValue.value = 10;
  OK(cuStreamBatchMemOp(writes, 2, ops, 0));
  OK(cuStreamSynchronize(writes));
  EXPECT_EQ(10, Read(word));
  ops[0].writeValue.address = word + 1;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2(writes, 1, ops, 0)) << "not aligned";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(writes, 8, 1, 0)) << "nobody's memory";
}

TEST_F(StreamSettingsTest, CaptureOfEveryForm) {
  CUstream stream{};
  CUgraph own{};
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuGraphCreate(&own, 0));
  OK(cuStreamBeginCapture(stream));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(stream));
  CUgraph made{};
  OK(cuStreamEndCapture(stream, &made));
  CUgraphNode first{};
  OK(cuGraphAddEmptyNode(&first, own, nullptr, 0));
  OK(cuStreamBeginCaptureToGraph(stream, own, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  Launch("empty", stream);
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph{};
  const CUgraphNode* tips = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  OK(cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, &tips, &edges, &count));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  EXPECT_EQ(own, graph);
  ASSERT_EQ(1u, count);
  CUgraphNode tip = tips[0], before{};
  EXPECT_NE(first, tip);
  OK(cuGraphNodeGetDependencies(tip, &before, &count));
  EXPECT_EQ(first, before);
  CUgraphNode other = first;
  OK(cuStreamUpdateCaptureDependencies_v2(stream, &other, nullptr, 1,
                                          CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  OK(cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, &tips, &edges, &count));
  EXPECT_EQ(2u, count);
  OK(cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(own, graph);
}

}  // namespace
}  // namespace tessera::sim::testing
