// Parameters of graph nodes: what was put in comes back, changes reach the next launch.
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "sim/cuda/testing/sim_device.h"

namespace tessera::sim::testing {
namespace {

class GraphNodeTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph_, 0));
  }
  CUgraphExec Instantiate() {
    CUgraphExec exec{};
    EXPECT_EQ(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&exec, graph_, 0));
    return exec;
  }
  void Run(CUgraphExec exec) {
    EXPECT_EQ(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  }
  CUDA_KERNEL_NODE_PARAMS_v1 Add(void** params) {
    CUDA_KERNEL_NODE_PARAMS_v1 kernel{};
    kernel.func = Kernel("add");
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
    kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = params;
    return kernel;
  }
  CUgraphNode Empty() {
    CUgraphNode node{};
    EXPECT_EQ(CUDA_SUCCESS, cuGraphAddEmptyNode(&node, graph_, nullptr, 0));
    return node;
  }

  CUstream stream_{};
  CUgraph graph_{};
};

TEST_F(GraphNodeTest, KernelInTheOldForm) {
  CUdeviceptr word = Word(1);
  int value = 2;
  void* params[] = {&word, &value};
  CUDA_KERNEL_NODE_PARAMS_v1 kernel = Add(params), back{};
  CUgraphNode node{};
  OK(cuGraphAddKernelNode(&node, graph_, nullptr, 0, &kernel));
  OK(cuGraphKernelNodeGetParams(node, &back));
  EXPECT_EQ(kernel.func, back.func);
  EXPECT_EQ(2, *static_cast<int*>(back.kernelParams[1]));
  value = 10;
  OK(cuGraphKernelNodeSetParams(node, &kernel));
  const CUgraphExec exec = Instantiate();
  Run(exec);
  EXPECT_EQ(11, Read(word));
  value = 100;
  OK(cuGraphExecKernelNodeSetParams(exec, node, &kernel));
  Run(exec);
  EXPECT_EQ(111, Read(word));
  OK(cuGraphKernelNodeGetParams(node, &back));
  EXPECT_EQ(10, *static_cast<int*>(back.kernelParams[1])) << "the graph stays as it was";
  cuuint64_t flags = 7;
  OK(cuGraphExecGetFlags(exec, &flags));
  EXPECT_EQ(0u, flags);
}

TEST_F(GraphNodeTest, KernelAttributesAreCopied) {
  CUdeviceptr word = Word(1);
  int value = 2;
  void* params[] = {&word, &value};
  const CUDA_KERNEL_NODE_PARAMS_v1 kernel = Add(params);
  CUgraphNode a{}, b{};
  OK(cuGraphAddKernelNode(&a, graph_, nullptr, 0, &kernel));
  OK(cuGraphAddKernelNode(&b, graph_, nullptr, 0, &kernel));
  CUkernelNodeAttrValue set{}, got{};
  set.priority = -2;
  OK(cuGraphKernelNodeSetAttribute(a, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &set));
  OK(cuGraphKernelNodeCopyAttributes(b, a));
  OK(cuGraphKernelNodeGetAttribute(b, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &got));
  EXPECT_EQ(-2, got.priority);
}

TEST_F(GraphNodeTest, CopyAndFill) {
  int from = 7, to = 0;
  const CUdeviceptr word = Word(0);
  CUDA_MEMCPY3D copy{}, copy_back{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = &from;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = word;
  copy.WidthInBytes = sizeof(int);
  copy.Height = copy.Depth = 1;
  CUgraphNode node{};
  OK(cuGraphAddMemcpyNode(&node, graph_, nullptr, 0, &copy, context_));
  OK(cuGraphMemcpyNodeGetParams(node, &copy_back));
  EXPECT_EQ(&from, copy_back.srcHost);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeGetParams(node, nullptr));
  CUgraphExec exec = Instantiate();
  Run(exec);
  EXPECT_EQ(7, Read(word));
  int other = 8;
  copy.srcHost = &other;
  OK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context_));
  Run(exec);
  EXPECT_EQ(8, Read(word));
  copy.srcMemoryType = static_cast<CUmemorytype>(9);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeSetParams(node, &copy));
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = &to;
  OK(cuGraphMemcpyNodeSetParams(node, &copy));

  CUDA_MEMSET_NODE_PARAMS fill{word, 0, 5, 4, 1, 1}, fill_back{};
  CUgraphNode fill_node{};
  OK(cuGraphAddMemsetNode(&fill_node, graph_, &node, 1, &fill, context_));
  OK(cuGraphMemsetNodeGetParams(fill_node, &fill_back));
  EXPECT_EQ(5u, fill_back.value);
  fill.value = 6;
  OK(cuGraphMemsetNodeSetParams(fill_node, &fill));
  exec = Instantiate();
  Run(exec);
  EXPECT_EQ(6, Read(word));
  fill.value = 9;
  OK(cuGraphExecMemsetNodeSetParams(exec, fill_node, &fill, context_));
  Run(exec);
  EXPECT_EQ(9, Read(word));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeGetParams(node, &fill_back))
      << "a node of another kind";
}

TEST_F(GraphNodeTest, HostFunction) {
  int called[2] = {};
  const CUhostFn count = [](void* at) { ++*static_cast<int*>(at); };
  CUDA_HOST_NODE_PARAMS host{count, &called[0]}, back{};
  CUgraphNode node{};
  OK(cuGraphAddHostNode(&node, graph_, nullptr, 0, &host));
  OK(cuGraphHostNodeGetParams(node, &back));
  EXPECT_EQ(&called[0], back.userData);
  OK(cuGraphHostNodeSetParams(node, &host));
  const CUgraphExec exec = Instantiate();
  Run(exec);
  host.userData = &called[1];
  OK(cuGraphExecHostNodeSetParams(exec, node, &host));
  Run(exec);
  EXPECT_EQ(1, called[0]);
  EXPECT_EQ(1, called[1]);
  host.fn = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphHostNodeSetParams(node, &host));
}

TEST_F(GraphNodeTest, Events) {
  CUevent a{}, b{}, got{};
  OK(cuEventCreate(&a, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&b, CU_EVENT_DEFAULT));
  CUgraphNode record{}, wait{};
  OK(cuGraphAddEventRecordNode(&record, graph_, nullptr, 0, a));
  OK(cuGraphAddEventWaitNode(&wait, graph_, &record, 1, a));
  OK(cuGraphEventRecordNodeGetEvent(record, &got));
  EXPECT_EQ(a, got);
  OK(cuGraphEventRecordNodeSetEvent(record, b));
  OK(cuGraphEventWaitNodeSetEvent(wait, b));
  OK(cuGraphEventWaitNodeGetEvent(wait, &got));
  EXPECT_EQ(b, got);
  const CUgraphExec exec = Instantiate();
  Run(exec);
  float ms = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, a, b)) << "never recorded";
  OK(cuGraphExecEventRecordNodeSetEvent(exec, record, a));
  OK(cuGraphExecEventWaitNodeSetEvent(exec, wait, a));
  Run(exec);
  OK(cuEventElapsedTime(&ms, b, a));
  EXPECT_GE(ms, 0);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuGraphEventRecordNodeSetEvent(record, reinterpret_cast<CUevent>(0x10)));
  OK(cuEventDestroy_v2(b));
  OK(cuEventDestroy(a));
}

TEST_F(GraphNodeTest, ExternalSemaphores) {
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC description{};
  description.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  CUexternalSemaphore semaphore{};
  OK(cuImportExternalSemaphore(&semaphore, &description));
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait{};
  signal.params.fence.value = wait.params.fence.value = 1;
  CUDA_EXT_SEM_SIGNAL_NODE_PARAMS signals{&semaphore, &signal, 1}, signals_back{};
  CUDA_EXT_SEM_WAIT_NODE_PARAMS waits{&semaphore, &wait, 1}, waits_back{};
  CUgraphNode first{}, second{};
  OK(cuGraphAddExternalSemaphoresSignalNode(&first, graph_, nullptr, 0, &signals));
  OK(cuGraphAddExternalSemaphoresWaitNode(&second, graph_, &first, 1, &waits));
  OK(cuGraphExternalSemaphoresSignalNodeGetParams(first, &signals_back));
  EXPECT_EQ(semaphore, signals_back.extSemArray[0]);
  OK(cuGraphExternalSemaphoresWaitNodeGetParams(second, &waits_back));
  EXPECT_EQ(1u, waits_back.paramsArray[0].params.fence.value);
  signal.params.fence.value = wait.params.fence.value = 2;
  OK(cuGraphExternalSemaphoresSignalNodeSetParams(first, &signals));
  OK(cuGraphExternalSemaphoresWaitNodeSetParams(second, &waits));
  const CUgraphExec exec = Instantiate();
  Run(exec);
  signal.params.fence.value = wait.params.fence.value = 3;
  OK(cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, first, &signals));
  OK(cuGraphExecExternalSemaphoresWaitNodeSetParams(exec, second, &waits));
  Run(exec);
  signals.numExtSems = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuGraphExternalSemaphoresSignalNodeSetParams(first, &signals));
  OK(cuDestroyExternalSemaphore(semaphore));
}

TEST_F(GraphNodeTest, MemoryOperations) {
  const CUdeviceptr word = Word(0);
  CUstreamBatchMemOpParams op{};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = word;
  op.writeValue.value = 3;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{context_, 1, &op, 0}, back{};
  CUgraphNode node{};
  OK(cuGraphAddBatchMemOpNode(&node, graph_, nullptr, 0, &params));
  OK(cuGraphBatchMemOpNodeGetParams(node, &back));
  EXPECT_EQ(3u, back.paramArray[0].writeValue.value);
  op.writeValue.value = 4;
  OK(cuGraphBatchMemOpNodeSetParams(node, &params));
  const CUgraphExec exec = Instantiate();
  Run(exec);
  EXPECT_EQ(4, Read(word));
  op.writeValue.value = 5;
  OK(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
  Run(exec);
  EXPECT_EQ(5, Read(word));
}

TEST_F(GraphNodeTest, Memory) {
  CUDA_MEM_ALLOC_NODE_PARAMS alloc{}, back{};
  alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  alloc.bytesize = 1000;
  CUgraphNode node{}, free{};
  OK(cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &alloc));
  OK(cuGraphMemAllocNodeGetParams(node, &back));
  EXPECT_EQ(alloc.dptr, back.dptr);
  EXPECT_EQ(1000u, back.bytesize);
  OK(cuGraphAddMemFreeNode(&free, graph_, &node, 1, alloc.dptr));
  CUdeviceptr freed = 0;
  OK(cuGraphMemFreeNodeGetParams(free, &freed));
  EXPECT_EQ(alloc.dptr, freed);
  cuuint64_t zero = 0, high = 0;
  Run(Instantiate());
  OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &high));
  EXPECT_NE(0u, high);
  OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &high));
  EXPECT_EQ(0u, high);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
}

TEST_F(GraphNodeTest, ByTheGeneralForm) {
  const CUdeviceptr word = Word(0);
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset = {word, 0, 5, 4, 1, 1, context_};
  CUgraphNode node{};
  OK(cuGraphAddNode_v2(&node, graph_, nullptr, nullptr, 0, &params));
  params.memset.value = 6;
  OK(cuGraphNodeSetParams(node, &params));
  const CUgraphExec exec = Instantiate();
  Run(exec);
  EXPECT_EQ(6, Read(word));
  params.memset.value = 7;
  OK(cuGraphExecNodeSetParams(exec, node, &params));
  Run(exec);
  EXPECT_EQ(7, Read(word));
  unsigned enabled = 0;
  OK(cuGraphNodeGetEnabled(exec, node, &enabled));
  EXPECT_EQ(1u, enabled);
  params.type = CU_GRAPH_NODE_TYPE_HOST;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetParams(node, &params));
}

TEST_F(GraphNodeTest, ChildTakesNewParametersWhileItsNodesAreHeld) {
  const CUdeviceptr word = Word(0), flag = Word(0);
  CUDA_MEMSET_NODE_PARAMS fill{word, 0, 5, 4, 1, 1};
  CUgraph child{};
  OK(cuGraphCreate(&child, 0));
  CUgraphNode node{}, inner{};
  OK(cuGraphAddMemsetNode(&inner, child, nullptr, 0, &fill, context_));
  OK(cuGraphAddChildGraphNode(&node, graph_, nullptr, 0, child));
  const CUgraphExec exec = Instantiate();
  OK(cuStreamWaitValue32_v2(stream_, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuGraphLaunch(exec, stream_));
  fill.value = 6;
  OK(cuGraphMemsetNodeSetParams(inner, &fill));
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = child;
  OK(cuGraphExecNodeSetParams(exec, node, &params));
  Poke(flag, 1);
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(5, Read(word));
  Run(exec);
  EXPECT_EQ(6, Read(word));
  fill.value = 7;
  OK(cuGraphMemsetNodeSetParams(inner, &fill));
  OK(cuGraphExecChildGraphNodeSetParams(exec, node, child));
  Run(exec);
  EXPECT_EQ(7, Read(word));
  CUgraphNode error_node{};
  CUgraphExecUpdateResult result{};
  OK(cuGraphExecUpdate(exec, graph_, &error_node, &result));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_SUCCESS, result);
  Empty();
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            cuGraphExecUpdate(exec, graph_, &error_node, &result));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, result);
}

TEST_F(GraphNodeTest, EdgesCarryData) {
  const CUgraphNode a = Empty(), b = Empty(), c = Empty();
  CUgraphEdgeData data{};
  data.type = CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
  OK(cuGraphAddDependencies_v2(graph_, &a, &b, &data, 1));
  OK(cuGraphAddDependencies_v2(graph_, &b, &c, nullptr, 1));
  CUgraphNode from[2], to[2];
  CUgraphEdgeData got[2];
  std::size_t count = 2;
  OK(cuGraphGetEdges_v2(graph_, from, to, got, &count));
  EXPECT_EQ(2u, count);
  count = 2;
  OK(cuGraphNodeGetDependencies(b, from, &count));
  EXPECT_EQ(1u, count);
  EXPECT_EQ(a, from[0]);
  count = 2;
  OK(cuGraphNodeGetDependencies_v2(c, from, got, &count));
  EXPECT_EQ(b, from[0]);
  count = 2;
  OK(cuGraphNodeGetDependentNodes(a, to, &count));
  EXPECT_EQ(b, to[0]);
  count = 2;
  OK(cuGraphNodeGetDependentNodes_v2(b, to, got, &count));
  EXPECT_EQ(c, to[0]);
  OK(cuGraphRemoveDependencies_v2(graph_, &a, &b, nullptr, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies_v2(graph_, &a, &b, nullptr, 1));
  const std::string path = "/tmp/simcuda-graph-" + std::to_string(getpid()) + ".dot";
  OK(cuGraphDebugDotPrint(graph_, path.c_str(), 0));
  EXPECT_EQ(0, unlink(path.c_str()));
  EXPECT_EQ(CUDA_ERROR_OPERATING_SYSTEM, cuGraphDebugDotPrint(graph_, "/nonexistent/x", 0));
}

TEST_F(GraphNodeTest, UserObjectsAreCounted) {
  int destroyed = 0;
  CUuserObject object{};
  const CUhostFn destroy = [](void* count) { ++*static_cast<int*>(count); };
  OK(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(cuUserObjectRetain(object, 2));
  OK(cuGraphRetainUserObject(graph_, object, 2, CU_GRAPH_USER_OBJECT_MOVE));
  OK(cuUserObjectRelease(object, 1));
  OK(cuGraphReleaseUserObject(graph_, object, 1));
  EXPECT_EQ(0, destroyed);
  OK(cuGraphReleaseUserObject(graph_, object, 1));
  EXPECT_EQ(1, destroyed);
}

}  // namespace
}  // namespace tessera::sim::testing
