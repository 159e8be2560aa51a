#include <cstring>
#include <string>
#include <vector>

#include "sim/cuda/testing/sim_device.h"
#include "sim/state/node_state.h"

namespace tessera::sim::testing {
namespace {

class GraphTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph_, 0));
  }

  CUgraphNode AddKernel(const char* name, CUdeviceptr word, int value,
                        std::vector<CUgraphNode> after = {}) {
    void* params[] = {&word, &value};
    CUDA_KERNEL_NODE_PARAMS kernel{};
    kernel.func = Kernel(name);
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimX = kernel.blockDimY =
        kernel.blockDimZ = 1;
    kernel.kernelParams = params;
    CUgraphNode node{};
    EXPECT_EQ(CUDA_SUCCESS,
              cuGraphAddKernelNode_v2(&node, graph_, after.data(), after.size(), &kernel));
    return node;
  }
  CUgraphNode AddAlloc(std::size_t bytes, CUdeviceptr* address,
                       std::vector<CUgraphNode> after = {}) {
    CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
    alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    alloc.bytesize = bytes;
    CUgraphNode node{};
    EXPECT_EQ(CUDA_SUCCESS,
              cuGraphAddMemAllocNode(&node, graph_, after.data(), after.size(), &alloc));
    *address = alloc.dptr;
    return node;
  }
  CUgraphExec Instantiate(unsigned long long flags = 0) {
    CUgraphExec exec{};
    EXPECT_EQ(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&exec, graph_, flags));
    return exec;
  }
  void Run(CUgraphExec exec) {
    EXPECT_EQ(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  }
  std::size_t Free() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemGetInfo_v2(&free, &total));
    return free;
  }
  std::uint64_t MemoryAttribute(CUgraphMem_attribute attribute) {
    cuuint64_t value = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
  }

  CUstream stream_{};
  CUgraph graph_{};
};

TEST_F(GraphTest, ReplayFollowsTheEdges) {
  const CUdeviceptr word = Word(1);
  const CUgraphNode scale = AddKernel("scale", word, 10);
  const CUgraphNode add = AddKernel("add", word, 5, {scale});
  AddKernel("scale", word, 2, {add});
  const CUgraphExec exec = Instantiate();
  Run(exec);
  EXPECT_EQ(30, Read(word));
  Run(exec);
  EXPECT_EQ(610, Read(word));
  std::size_t edges = 0, nodes = 0, roots = 0;
  OK(cuGraphGetEdges(graph_, nullptr, nullptr, &edges));
  OK(cuGraphGetNodes(graph_, nullptr, &nodes));
  OK(cuGraphGetRootNodes(graph_, nullptr, &roots));
  EXPECT_EQ(2u, edges);
  EXPECT_EQ(3u, nodes);
  EXPECT_EQ(1u, roots);
}

TEST_F(GraphTest, CycleIsRefusedAtInstantiation) {
  const CUdeviceptr word = Word();
  const CUgraphNode a = AddKernel("add", word, 1), b = AddKernel("add", word, 1, {a});
  OK(cuGraphAddDependencies(graph_, &b, &a, 1));
  CUgraphExec exec{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph_, 0));
  OK(cuGraphRemoveDependencies(graph_, &b, &a, 1));
  OK(cuGraphInstantiateWithFlags(&exec, graph_, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph_, &a, &b, 1));
}

TEST_F(GraphTest, ExecutableKeepsItsOwnParameters) {
  const CUdeviceptr word = Word(0);
  const CUgraphNode node = AddKernel("add", word, 1);
  const CUgraphExec exec = Instantiate();
  CUDA_KERNEL_NODE_PARAMS params{};
  OK(cuGraphKernelNodeGetParams_v2(node, &params));
  int value = 100;
  CUdeviceptr target = word;
  void* list[] = {&target, &value};
  params.kernelParams = list;
  OK(cuGraphKernelNodeSetParams_v2(node, &params));
  Run(exec);
  EXPECT_EQ(1, Read(word));
  OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
  Run(exec);
  EXPECT_EQ(101, Read(word));
  OK(cuGraphNodeSetEnabled(exec, node, 0));
  Run(exec);
  EXPECT_EQ(101, Read(word));
  OK(cuGraphDestroy(graph_));
  OK(cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, UpdateTakesParametersAndRefusesAnotherShape) {
  const CUdeviceptr word = Word(0);
  const CUgraphNode first = AddKernel("add", word, 1);
  const CUgraphExec exec = Instantiate();
  const CUgraph old = graph_;
  OK(cuGraphCreate(&graph_, 0));
  const CUgraphNode again = AddKernel("add", word, 50);
  CUgraphExecUpdateResultInfo info{};
  OK(cuGraphExecUpdate_v2(exec, graph_, &info));
  Run(exec);
  EXPECT_EQ(50, Read(word));
  AddKernel("add", word, 1, {again});
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, graph_, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
  (void)first;
  OK(cuGraphDestroy(old));
}

TEST_F(GraphTest, HostAndChildNodesRunInOrder) {
  const CUdeviceptr word = Word(1);
  const CUgraphNode inner = AddKernel("add", word, 1);
  (void)inner;
  const CUgraph child = graph_;
  OK(cuGraphCreate(&graph_, 0));
  CUgraphNode child_node{}, host_node{};
  OK(cuGraphAddChildGraphNode(&child_node, graph_, nullptr, 0, child));
  struct Seen {
    int* word;
    int value;
  } seen{reinterpret_cast<int*>(word), 0};
  const CUDA_HOST_NODE_PARAMS host{[](void* data) {
                                     auto* at = static_cast<Seen*>(data);
                                     at->value = *at->word;
                                   },
                                   &seen};
  OK(cuGraphAddHostNode(&host_node, graph_, &child_node, 1, &host));
  AddKernel("scale", word, 10, {host_node});
  Run(Instantiate());
  EXPECT_EQ(2, seen.value);
  EXPECT_EQ(20, Read(word));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy([&] {
              CUgraph owned{};
              cuGraphChildGraphNodeGetGraph(child_node, &owned);
              return owned;
            }()));
}

TEST_F(GraphTest, CopyAndFillNodesMoveBytes) {
  const CUdeviceptr word = Word(0);
  CUDA_MEMSET_NODE_PARAMS fill{word, 0, 7, 4, 1, 1};
  CUgraphNode fill_node{}, copy_node{};
  OK(cuGraphAddMemsetNode(&fill_node, graph_, nullptr, 0, &fill, context_));
  int out = 0;
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = word;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = &out;
  copy.WidthInBytes = 4;
  copy.Height = copy.Depth = 1;
  OK(cuGraphAddMemcpyNode(&copy_node, graph_, &fill_node, 1, &copy, context_));
  Run(Instantiate());
  EXPECT_EQ(7, out);
}

TEST_F(GraphTest, MemoryIsTakenAtTheFirstLaunchAndKeptUntilTrimmed) {
  const std::size_t before = Free();
  CUdeviceptr address = 0;
  const CUgraphNode alloc = AddAlloc(3 << 20, &address);
  const CUgraphNode use = AddKernel("add", address, 1, {alloc});
  CUgraphNode free_node{};
  OK(cuGraphAddMemFreeNode(&free_node, graph_, &use, 1, address));
  const CUgraphExec exec = Instantiate();
  EXPECT_EQ(before, Free());
  Run(exec);
  EXPECT_EQ(before - (4u << 20), Free());
  EXPECT_EQ(0u, MemoryAttribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
  EXPECT_EQ(4u << 20, MemoryAttribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
  EXPECT_EQ(4u << 20, MemoryAttribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH));
  Run(exec);
  EXPECT_EQ(before - (4u << 20), Free());
  OK(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(before, Free());
  Run(exec);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph_));
  EXPECT_EQ(before, Free());
}

TEST_F(GraphTest, MemoryWithoutAFreeNodeOutlivesTheLaunch) {
  const std::size_t before = Free();
  CUdeviceptr address = 0;
  AddAlloc(1 << 20, &address);
  const CUgraphExec exec = Instantiate();
  Run(exec);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream_));  // still allocated
  OK(cuMemFree_v2(address));
  Run(exec);
  OK(cuMemFreeAsync(address, stream_));
  OK(cuStreamSynchronize(stream_));
  const CUgraphExec again = Instantiate(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  Run(again);
  Run(again);
  OK(cuMemFree_v2(address));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphExecDestroy(again));
  OK(cuGraphDestroy(graph_));
  EXPECT_EQ(before, Free());
}

TEST_F(GraphTest, MemoryThatIsNotThereFailsTheLaunch) {
  CUdeviceptr address = 0;
  AddAlloc(std::size_t{64} << 30, &address);
  const CUgraphExec exec = Instantiate();
  const std::size_t before = Free();
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, stream_));
  EXPECT_EQ(before, Free());
}

TEST_F(GraphTest, BranchesTakeTheEnginesTime) {
  CUevent start{}, end{};
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  const auto add = [&](const char* name, std::vector<CUgraphNode> after) {
    CUDA_KERNEL_NODE_PARAMS kernel{};
    kernel.func = Kernel(name);
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimX = kernel.blockDimY =
        kernel.blockDimZ = 1;
    CUgraphNode node{};
    EXPECT_EQ(CUDA_SUCCESS,
              cuGraphAddKernelNode_v2(&node, graph_, after.data(), after.size(), &kernel));
    return node;
  };
  const CUgraphNode root = add("k100us", {}), left = add("k100us", {root}),
                    right = add("k100us", {root});
  add("k100us", {left, right});
  const CUgraphExec exec = Instantiate();
  Launch("k5ms", stream_);
  OK(cuEventRecord(start, stream_));
  OK(cuGraphLaunch(exec, stream_));
  OK(cuEventRecord(end, stream_));
  OK(cuStreamSynchronize(stream_));
  float ms = 0;
  OK(cuEventElapsedTime_v2(&ms, start, end));
  EXPECT_FLOAT_EQ(0.4025f, ms);  // four kernels on the one compute engine, and the record
}

TEST_F(GraphTest, ConditionalBodyRunsByItsDefault) {
  const CUdeviceptr word = Word(0);
  for (unsigned value : {0u, 1u}) {
    CUgraph graph{};
    OK(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle handle{};
    OK(cuGraphConditionalHandleCreate(&handle, graph, context_, value,
                                      CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 1;
    params.conditional.ctx = context_;
    CUgraphNode node{};
    OK(cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &params));
    std::swap(graph_, graph);
    const CUgraph outer = graph_;
    graph_ = params.conditional.phGraph_out[0];
    AddKernel("add", word, 1);
    graph_ = outer;
    Run(Instantiate());
    EXPECT_EQ(static_cast<int>(value), Read(word));
  }
}

TEST_F(GraphTest, MemoryOperationNodesWriteAndWait) {
  const CUdeviceptr word = Word(0);
  CUstreamBatchMemOpParams ops[2]{};
  ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ops[0].writeValue.address = word;
  ops[0].writeValue.value = 3;
  ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  ops[1].waitValue.address = word;
  ops[1].waitValue.value = 3;
  ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  const CUDA_BATCH_MEM_OP_NODE_PARAMS params{context_, 2, ops, 0};
  CUgraphNode node{};
  OK(cuGraphAddBatchMemOpNode(&node, graph_, nullptr, 0, &params));
  AddKernel("scale", word, 4, {node});
  Run(Instantiate());
  EXPECT_EQ(12, Read(word));
}

// The first node is held back by the stream's wait when the launch fails at the second.
TEST_F(GraphTest, ExecIsDestroyedAfterALaunchThatFailedHalfWay) {
  const CUdeviceptr word = Word(3), flag = Word(0);
  CUmodule other{};
  OK(cuModuleLoadData(&other, kTestPtx));
  const CUgraphNode first = AddKernel("scale", word, 5);
  CUDA_KERNEL_NODE_PARAMS gone{};
  OK(cuModuleGetFunction(&gone.func, other, "empty"));
  gone.gridDimX = gone.gridDimY = gone.gridDimZ = 1;
  gone.blockDimX = gone.blockDimY = gone.blockDimZ = 1;
  CUgraphNode second{};
  OK(cuGraphAddKernelNode_v2(&second, graph_, &first, 1, &gone));
  CUdeviceptr allocated = 0;
  AddAlloc(1 << 20, &allocated);
  const CUgraphExec exec = Instantiate();
  OK(cuModuleUnload(other));
  OK(cuStreamWaitValue32_v2(stream_, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_NE(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
  EXPECT_EQ(0u, MemoryAttribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphExecDestroy(Instantiate()));  // a good moment to delete what ended
  Poke(flag, 1);
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(15, Read(word));
}

TEST_F(GraphTest, ContextEndsThoughAGraphIsHeldForEver) {
  const CUdeviceptr word = Word(3), flag = Word(0);
  AddKernel("scale", word, 5);
  const CUgraphExec exec = Instantiate();
  OK(cuStreamWaitValue32_v2(stream_, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuGraphLaunch(exec, stream_));
  OK(cuDevicePrimaryCtxReset_v2(0));
  OK(cuGraphExecDestroy(exec));
  OK(cuDevicePrimaryCtxRetain(&context_, 0));
}

TEST_F(GraphTest, UserObjectLivesAsLongAsAGraphNamesIt) {
  int destroyed = 0;
  CUuserObject object{};
  OK(cuUserObjectCreate(
      &object, &destroyed, [](void* count) { ++*static_cast<int*>(count); }, 1,
      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(cuGraphRetainUserObject(graph_, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  AddKernel("add", Word(), 1);
  const CUgraphExec exec = Instantiate();
  OK(cuGraphDestroy(graph_));
  EXPECT_EQ(0, destroyed);
  OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(1, destroyed);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(object, 1));
}

TEST_F(GraphTest, CloneFindsItsNodes) {
  const CUgraphNode node = AddKernel("add", Word(), 1);
  CUgraph clone{};
  OK(cuGraphClone(&clone, graph_));
  CUgraphNode found{};
  OK(cuGraphNodeFindInClone(&found, node, clone));
  EXPECT_NE(node, found);
  CUgraphNodeType type{};
  OK(cuGraphNodeGetType(found, &type));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_KERNEL, type);
  OK(cuGraphDestroyNode(node));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(node, &type));
  OK(cuGraphNodeGetType(found, &type));
}

}  // namespace
}  // namespace tessera::sim::testing
