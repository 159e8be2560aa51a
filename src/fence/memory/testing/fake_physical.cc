// Memory of cuMemCreate and what may refer to it: handles, mappings, bindings, descriptors.
#include "memory/testing/fake_state.h"

namespace tessera::fence::testing::fake {

namespace {

void DropPhysical(std::uint64_t handle) {
  const Physical& p = D().physical[handle];
  if (p.handles > 0 || p.mappings > 0) return;
  if (p.card >= 0) D().bytes[p.card] -= p.size;
  D().physical.erase(handle);
}
std::uint64_t Resolve(std::uint64_t handle) {
  const auto found = D().imported.find(handle);
  return found == D().imported.end() ? handle : found->second;
}
CUresult AddBinding(std::uint64_t owner, std::uint64_t place, std::uint64_t handle) {
  const auto found = D().physical.find(Resolve(handle));
  if (found == D().physical.end()) return CUDA_ERROR_INVALID_VALUE;
  ++found->second.mappings;
  D().bindings[{owner, place}] = found->first;
  return CUDA_SUCCESS;
}

CUresult Create(CUmemGenericAllocationHandle* handle, std::size_t size,
                const CUmemAllocationProp* prop, unsigned long long) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  *handle = D().next_handle++;
  const bool device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  D().physical[*handle] = {device ? prop->location.id : -1, size, 1, 0};
  if (device) D().bytes[prop->location.id] += size;
  return CUDA_SUCCESS;
}
CUresult ReleaseHandle(CUmemGenericAllocationHandle value) {
  Lock lock(D().mutex);
  const std::uint64_t handle = Resolve(value);
  const auto found = D().physical.find(handle);
  if (found == D().physical.end() || found->second.handles == 0) return CUDA_ERROR_INVALID_VALUE;
  --found->second.handles;
  D().imported.erase(value);
  if (found->second.card < 0 && found->second.handles == 0) EndBindingsOf(handle);
  DropPhysical(handle);
  return CUDA_SUCCESS;
}
CUresult MapTiles(CUarrayMapInfo* list, unsigned count, CUstream) {
  Lock lock(D().mutex);
  for (unsigned i = 0; i < count; ++i) {
    const auto owner = reinterpret_cast<std::uint64_t>(list[i].resource.array);
    const std::uint64_t place = list[i].subresource.sparseLevel.offsetX;
    if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
      D().unbound_at_synchronisation.push_back({owner, place});
    } else if (AddBinding(owner, place, list[i].memHandle.memHandle) != CUDA_SUCCESS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
CUresult CreateMulticast(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp*) {
  Lock lock(D().mutex);
  *handle = D().next_handle++;
  D().physical[*handle] = {-1, 0, 1, 0};
  return CUDA_SUCCESS;
}
CUresult BindMemory(CUmemGenericAllocationHandle object, std::size_t offset,
                    CUmemGenericAllocationHandle memory, std::size_t, std::size_t,
                    unsigned long long) {
  Lock lock(D().mutex);
  return AddBinding(object, offset, memory);
}
CUresult UnbindMemory(CUmemGenericAllocationHandle object, CUdevice, std::size_t offset,
                      std::size_t) {
  Lock lock(D().mutex);
  if (D().bindings.count({object, offset}) == 0) return CUDA_ERROR_INVALID_VALUE;
  EndBinding({object, offset});
  return CUDA_SUCCESS;
}
// A descriptor is a number from the handles' row; it holds the memory as a binding does.
CUresult Export(void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                unsigned long long) {
  Lock lock(D().mutex);
  const std::uint64_t number = D().next_handle++;
  *static_cast<int*>(shareable) = static_cast<int>(number);
  return AddBinding(number, 0, handle);
}
CUresult ImportHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                      CUmemAllocationHandleType) {
  Lock lock(D().mutex);
  const auto found = D().bindings.find({reinterpret_cast<std::uint64_t>(shareable), 0});
  if (found == D().bindings.end()) return CUDA_ERROR_INVALID_VALUE;
  *handle = D().next_handle++;
  D().imported[*handle] = found->second;
  ++D().physical[found->second].handles;
  return CUDA_SUCCESS;
}
CUresult Map(CUdeviceptr address, std::size_t size, std::size_t,
             CUmemGenericAllocationHandle handle, unsigned long long) {
  Lock lock(D().mutex);
  const auto found = D().physical.find(Resolve(handle));
  if (found == D().physical.end()) return CUDA_ERROR_INVALID_VALUE;
  ++found->second.mappings;
  D().mappings[address] = {size, found->first};
  return CUDA_SUCCESS;
}
CUresult Unmap(CUdeviceptr address, std::size_t size) {
  Lock lock(D().mutex);
  bool any = false;
  for (auto it = D().mappings.lower_bound(address);
       it != D().mappings.end() && it->first < address + size;) {
    const std::uint64_t handle = it->second.second;
    it = D().mappings.erase(it);
    --D().physical[handle].mappings;
    DropPhysical(handle);
    any = true;
  }
  return any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult RetainHandle(CUmemGenericAllocationHandle* handle, void* pointer) {
  Lock lock(D().mutex);
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  for (const auto& [base, mapping] : D().mappings) {
    if (address < base || address - base >= mapping.first) continue;
    *handle = mapping.second;
    ++D().physical[*handle].handles;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

void EndBinding(std::pair<std::uint64_t, std::uint64_t> key) {
  const auto found = D().bindings.find(key);
  if (found == D().bindings.end()) return;
  const std::uint64_t handle = found->second;
  D().bindings.erase(found);
  --D().physical[handle].mappings;
  DropPhysical(handle);
}
void EndBindingsOf(std::uint64_t owner) {
  for (auto it = D().bindings.lower_bound({owner, 0});
       it != D().bindings.end() && it->first.first == owner;
       it = D().bindings.lower_bound({owner, 0}))
    EndBinding(it->first);
}

void PlacePhysical() {
  real::cuMemCreate = Watched<Call::kMemCreate, Create>;
  real::cuMemRelease = ReleaseHandle;
  real::cuMemMap = Watched<Call::kMap, Map>;
  real::cuMemUnmap = Watched<Call::kUnmap, Unmap>;
  real::cuMemRetainAllocationHandle = RetainHandle;
  real::cuMemMapArrayAsync = MapTiles;
  real::cuMulticastCreate = CreateMulticast;
  real::cuMulticastBindMem = BindMemory;
  real::cuMulticastUnbind = UnbindMemory;
  real::cuMemExportToShareableHandle = Export;
  real::cuMemImportFromShareableHandle = ImportHandle;
}

}  // namespace tessera::fence::testing::fake
