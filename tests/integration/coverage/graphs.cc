// Graph memory nodes: the graph's pool is charged when the graph takes it, and given back by
// trimming.
#include <memory>

#include "tests/integration/coverage/row.h"

namespace tessera::testing {
namespace {

// What a row puts in place of the plain calls.
struct Calls {
  std::function<CUresult(CUgraph graph, std::uint64_t bytes, CUdeviceptr* pointer)> add_alloc;
  std::function<CUresult(CUgraphExec* exec, CUgraph graph)> instantiate;
  std::function<CUresult(CUgraphExec exec, CUstream stream)> launch;
  std::function<CUresult()> trim;
  std::function<CUresult(CUgraphExec exec)> destroy;
};

CUDA_MEM_ALLOC_NODE_PARAMS NodeParams(std::uint64_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params.bytesize = bytes;
  return params;
}

CUgraphNodeParams AnyNodeParams(std::uint64_t bytes) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params.alloc.bytesize = bytes;
  return params;
}

CUresult AddAllocWith(decltype(cuGraphAddMemAllocNode)* add, CUgraph graph, std::uint64_t bytes,
                      CUdeviceptr* pointer) {
  CUgraphNode node = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params = NodeParams(bytes);
  CUresult result = add(&node, graph, nullptr, 0, &params);
  *pointer = params.dptr;
  return result;
}

Calls Plain() {
  return {
      [](CUgraph graph, std::uint64_t bytes, CUdeviceptr* pointer) {
        return AddAllocWith(&DRIVER(cuGraphAddMemAllocNode), graph, bytes, pointer);
      },
      [](CUgraphExec* exec, CUgraph graph) {
        return DRIVER(cuGraphInstantiateWithFlags)(exec, graph, 0);
      },
      [](CUgraphExec exec, CUstream stream) { return DRIVER(cuGraphLaunch)(exec, stream); },
      [] { return DRIVER(cuDeviceGraphMemTrim)(0); },
      [](CUgraphExec exec) { return DRIVER(cuGraphExecDestroy)(exec); },
  };
}

struct Running {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr pointer = 0;
};

// Builds a graph that allocates `bytes` and leaves them allocated, and launches it once.
CUresult Launch(const Calls& calls, Bench& bench, std::uint64_t bytes, Running& running) {
  CUresult result = DRIVER(cuGraphCreate)(&running.graph, 0);
  if (result == CUDA_SUCCESS) result = calls.add_alloc(running.graph, bytes, &running.pointer);
  if (result == CUDA_SUCCESS) result = calls.instantiate(&running.exec, running.graph);
  if (result == CUDA_SUCCESS) result = calls.launch(running.exec, bench.stream);
  if (result == CUDA_SUCCESS) result = DRIVER(cuStreamSynchronize)(bench.stream);
  return result;
}

void Drop(const Calls& calls, Running& running) {
  if (running.exec != nullptr) calls.destroy(running.exec);
  if (running.graph != nullptr) DRIVER(cuGraphDestroy)(running.graph);
  running = {};
}

Steps Graph(Bench& bench, Calls calls) {
  auto running = std::make_shared<Running>();
  Steps steps;
  steps.exceed = [=, &bench] {
    CUresult result = Launch(calls, bench, bench.limit + kMiB, *running);
    Drop(calls, *running);
    DRIVER(cuDeviceGraphMemTrim)(0);
    return result;
  };
  steps.take = [=, &bench] { return Launch(calls, bench, kPiece, *running); };
  steps.release = [=] {
    CUresult result = DRIVER(cuMemFree_v2)(running->pointer);
    Drop(calls, *running);
    return result != CUDA_SUCCESS ? result : calls.trim();
  };
  return steps;
}

// Registers `symbol` with one of the plain calls replaced by `replace(calls, function)`.
void Add(std::vector<Entry>& entries, const char* symbol,
         std::function<void(Calls& calls, void* function)> replace) {
  entries.push_back({symbol, [replace](Bench& bench, void* function) {
                       Calls calls = Plain();
                       replace(calls, function);
                       return Graph(bench, calls);
                     }});
}

// A captured cuMemAllocAsync becomes a memory node of the graph.
Steps Captured(Bench& bench, std::function<CUresult(CUstream stream)> begin,
               std::function<CUresult(CUstream stream, CUgraph* graph)> end) {
  Calls calls = Plain();
  auto running = std::make_shared<Running>();
  auto launch = [=, &bench](std::uint64_t bytes) {
    CUresult result = begin(bench.stream);
    if (result != CUDA_SUCCESS) return result;
    CUresult taken = DRIVER(cuMemAllocAsync)(&running->pointer, bytes, bench.stream);
    result = end(bench.stream, &running->graph);
    if (taken != CUDA_SUCCESS) return taken;
    if (result == CUDA_SUCCESS) result = calls.instantiate(&running->exec, running->graph);
    if (result == CUDA_SUCCESS) result = calls.launch(running->exec, bench.stream);
    return result != CUDA_SUCCESS ? result : DRIVER(cuStreamSynchronize)(bench.stream);
  };
  Steps steps;
  steps.exceed = [=, &bench] {
    CUresult result = launch(bench.limit + kMiB);
    Drop(calls, *running);
    DRIVER(cuDeviceGraphMemTrim)(0);
    return result;
  };
  steps.take = [=] { return launch(kPiece); };
  steps.release = [=] {
    CUresult result = DRIVER(cuMemFree_v2)(running->pointer);
    Drop(calls, *running);
    return result != CUDA_SUCCESS ? result : calls.trim();
  };
  return steps;
}

}  // namespace

void RegisterGraphs(std::vector<Entry>& entries) {
  Add(entries, "cuGraphAddMemAllocNode", [](Calls& calls, void* function) {
    calls.add_alloc = [=](CUgraph graph, std::uint64_t bytes, CUdeviceptr* pointer) {
      return AddAllocWith(&AS(cuGraphAddMemAllocNode, function), graph, bytes, pointer);
    };
  });
  Add(entries, "cuGraphAddNode", [](Calls& calls, void* function) {
    calls.add_alloc = [=](CUgraph graph, std::uint64_t bytes, CUdeviceptr* pointer) {
      CUgraphNode node = nullptr;
      CUgraphNodeParams params = AnyNodeParams(bytes);
      auto add = reinterpret_cast<CUresult (*)(CUgraphNode*, CUgraph, const CUgraphNode*,
                                               std::size_t, CUgraphNodeParams*)>(function);
      CUresult result = add(&node, graph, nullptr, 0, &params);
      *pointer = params.alloc.dptr;
      return result;
    };
  });
  Add(entries, "cuGraphAddNode_v2", [](Calls& calls, void* function) {
    calls.add_alloc = [=](CUgraph graph, std::uint64_t bytes, CUdeviceptr* pointer) {
      CUgraphNode node = nullptr;
      CUgraphNodeParams params = AnyNodeParams(bytes);
      CUresult result = AS(cuGraphAddNode_v2, function)(&node, graph, nullptr, nullptr, 0, &params);
      *pointer = params.alloc.dptr;
      return result;
    };
  });
  for (const char* symbol : {"cuGraphLaunch", "cuGraphLaunch_ptsz"}) {
    Add(entries, symbol, [](Calls& calls, void* function) {
      calls.launch = [=](CUgraphExec exec, CUstream stream) {
        return AS(cuGraphLaunch, function)(exec, stream);
      };
    });
  }
  Add(entries, "cuGraphInstantiateWithFlags", [](Calls& calls, void* function) {
    calls.instantiate = [=](CUgraphExec* exec, CUgraph graph) {
      return AS(cuGraphInstantiateWithFlags, function)(exec, graph, 0);
    };
  });
  for (const char* symbol : {"cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"}) {
    Add(entries, symbol, [](Calls& calls, void* function) {
      calls.instantiate = [=](CUgraphExec* exec, CUgraph graph) {
        CUDA_GRAPH_INSTANTIATE_PARAMS params{};
        return AS(cuGraphInstantiateWithParams, function)(exec, graph, &params);
      };
    });
  }
  for (const char* symbol : {"cuGraphInstantiate", "cuGraphInstantiate_v2"}) {
    Add(entries, symbol, [](Calls& calls, void* function) {
      calls.instantiate = [=](CUgraphExec* exec, CUgraph graph) {
        return AS(cuGraphInstantiate_v2, function)(exec, graph, nullptr, nullptr, 0);
      };
    });
  }
  Add(entries, "cuDeviceGraphMemTrim", [](Calls& calls, void* function) {
    calls.trim = [=] { return AS(cuDeviceGraphMemTrim, function)(0); };
  });
  Add(entries, "cuGraphExecDestroy", [](Calls& calls, void* function) {
    calls.destroy = [=](CUgraphExec exec) { return AS(cuGraphExecDestroy, function)(exec); };
  });
  for (const char* symbol : {"cuGraphUpload", "cuGraphUpload_ptsz"}) {
    Add(entries, symbol, [](Calls& calls, void* function) {
      calls.launch = [=](CUgraphExec exec, CUstream stream) {
        CUresult result = AS(cuGraphUpload, function)(exec, stream);
        return result != CUDA_SUCCESS ? result : DRIVER(cuGraphLaunch)(exec, stream);
      };
    });
  }
  auto end = [](CUstream stream, CUgraph* graph) {
    return DRIVER(cuStreamEndCapture)(stream, graph);
  };
  for (const char* symbol : {"cuStreamBeginCapture_v2", "cuStreamBeginCapture_v2_ptsz"}) {
    entries.push_back({symbol, [end](Bench& bench, void* function) {
                         return Captured(
                             bench,
                             [=](CUstream stream) {
                               return AS(cuStreamBeginCapture_v2, function)(
                                   stream, CU_STREAM_CAPTURE_MODE_RELAXED);
                             },
                             end);
                       }});
  }
}

}  // namespace tessera::testing
