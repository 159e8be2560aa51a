#include "sim/cuda/graph_user_object.h"

#include <climits>

#include "sim/cuda/api.h"
#include "sim/cuda/graph.h"

namespace tessera::sim {

void RetainUserObject(UserObject& object, unsigned count) { object.references.fetch_add(count); }

void ReleaseUserObject(UserObject& object, unsigned count) {
  if (object.references.fetch_sub(count) > count) return;
  RemoveHandle<UserObject>(object.handle);
  object.destroy(object.pointer);
  delete &object;
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuUserObjectCreate)(CUuserObject* handle, void* pointer, CUhostFn destroy,
                            unsigned references, unsigned flags) {
  if (handle == nullptr || destroy == nullptr || references == 0 || references > INT_MAX ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* object = new UserObject;
  object->pointer = pointer;
  object->destroy = destroy;
  object->references = references;
  object->handle = NewHandle(object);
  *handle = object->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuUserObjectRetain)(CUuserObject handle, unsigned count) {
  UserObject* object = Find<UserObject>(handle);
  if (object == nullptr || count == 0 || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
  RetainUserObject(*object, count);
  return CUDA_SUCCESS;
}

SIM_API(cuUserObjectRelease)(CUuserObject handle, unsigned count) {
  UserObject* object = Find<UserObject>(handle);
  if (object == nullptr || count == 0 || count > object->references.load())
    return CUDA_ERROR_INVALID_VALUE;
  ReleaseUserObject(*object, count);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphRetainUserObject)(CUgraph graph_handle, CUuserObject handle, unsigned count,
                                 unsigned flags) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(graph_handle, &graph));
  UserObject* object = Find<UserObject>(handle);
  if (object == nullptr || count == 0 || count > INT_MAX ||
      (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(GraphMutex());
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) RetainUserObject(*object, count);
  graph->user_objects[object] += count;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphReleaseUserObject)(CUgraph graph_handle, CUuserObject handle, unsigned count) {
  Graph* graph = nullptr;
  SIM_TRY(FindGraph(graph_handle, &graph));
  UserObject* object = Find<UserObject>(handle);
  std::lock_guard lock(GraphMutex());
  const auto held = graph->user_objects.find(object);
  if (object == nullptr || held == graph->user_objects.end() || count == 0 ||
      count > held->second) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  held->second -= count;
  if (held->second == 0) graph->user_objects.erase(held);
  ReleaseUserObject(*object, count);
  return CUDA_SUCCESS;
}
