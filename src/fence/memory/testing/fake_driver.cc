#include "memory/testing/fake_driver.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "slice/slice.h"

namespace tessera::fence::testing {
namespace {

constexpr std::uint64_t kBlock = 2 * kMiB;
constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 40;

std::uint64_t Blocks(std::uint64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

struct Context {
  int card = 0;
  bool alive = true;
  int uses = 1;
  std::uint64_t heap = 8 * kMiB;  // within the cost of the context
};

struct Range {
  std::uint64_t size = 0;
  Context* context = nullptr;
  std::uint64_t block = 0;  // base of the shared block of a small request
  CUmemoryPool pool = nullptr;
};

struct Block {
  Context* context = nullptr;
  std::uint64_t used = 0;  // bump
  int live = 0;
};

struct Pool {
  int card = 0;
  std::uint64_t reserved = 0, used = 0, threshold = 0;
  bool destroyed = false;
};

struct Physical {
  int card = 0;
  std::uint64_t size = 0;
  int handles = 0, mappings = 0;
};

struct Array {
  Context* context = nullptr;
  std::uint64_t bytes = 0;
};

struct Driver {
  std::recursive_mutex mutex;
  std::uint64_t bytes[kCards] = {};
  std::uint64_t neighbours[kCards] = {};
  std::uint64_t moves_in_load = 0;
  std::uint64_t code_bytes = 14 * kMiB;
  int modules = 0;
  bool tells = false;
  int asked = 0;
  std::uint64_t next_address = kFirstAddress;
  std::multimap<std::uint64_t, std::uint64_t> free_ranges;  // size -> address, reused at once
  std::map<std::uint64_t, Range> ranges;
  std::map<std::uint64_t, Block> blocks;
  std::set<Pool*> pools;
  Pool* default_pools[kCards] = {};
  std::map<std::uint64_t, Physical> physical;
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>>
      mappings;  // address -> size, handle
  std::set<Array*> arrays;
  std::set<Context*> contexts;
  Context* primary[kCards] = {};
  int primary_references[kCards] = {};
  std::uint64_t next_handle = 0x1000;
  std::uint64_t next_low_address = 64 * kMiB;
  std::uint64_t graph_bytes = 0;
  CUresult fail = CUDA_SUCCESS;
  int allocation_calls = 0;
  int calls_on_the_dead = 0;
  bool reuse_handles = false;
  // Other references to physical memory: array and place, multicast object and offset, descriptors;
  // imported handles by what they stand for.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> bindings;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> unbound_at_synchronisation;
  std::map<std::uint64_t, std::uint64_t> imported;
  Context* last_ended = nullptr;
  Pool* last_pool = nullptr;
  std::vector<Pool*> ended_pools;  // kept: the fence may still ask about their handles
  std::function<void()> meanwhile[static_cast<int>(Call::kCalls)][2];  // before, after
};

Driver& D() {
  static auto* driver = new Driver();
  return *driver;
}

thread_local Context* t_current = nullptr;

using Lock = std::lock_guard<std::recursive_mutex>;

void RunOther(Call call, int when) {
  std::function<void()> other;
  {
    Lock lock(D().mutex);
    other.swap(D().meanwhile[static_cast<int>(call)][when]);
  }
  if (other) other();
}

// The driver's function with what other threads do around it.
template <Call kCall, auto kFunction, typename... Arguments>
CUresult Watched(Arguments... arguments) {
  RunOther(kCall, 0);
  const CUresult result = kFunction(arguments...);
  RunOther(kCall, 1);
  return result;
}

CUresult Failing() {
  ++D().allocation_calls;
  const CUresult result = D().fail;
  D().fail = CUDA_SUCCESS;
  return result;
}

std::uint64_t TakeAddress(std::uint64_t bytes) {
  if (const auto found = D().free_ranges.find(bytes); found != D().free_ranges.end()) {
    const std::uint64_t address = found->second;
    D().free_ranges.erase(found);
    return address;
  }
  const std::uint64_t address = D().next_address;
  D().next_address += bytes;
  return address;
}

std::uint64_t Give(Context* context, std::uint64_t size) {
  if (size > kMiB) {
    const std::uint64_t address = TakeAddress(Blocks(size));
    D().bytes[context->card] += Blocks(size);
    D().ranges[address] = {size, context, 0, nullptr};
    return address;
  }
  const std::uint64_t rounded = (size + 511) / 512 * 512;
  for (auto& [base, block] : D().blocks) {
    if (block.context != context || block.used + rounded > kBlock) continue;
    const std::uint64_t address = base + block.used;
    block.used += rounded;
    ++block.live;
    D().ranges[address] = {size, context, base, nullptr};
    return address;
  }
  const std::uint64_t base = TakeAddress(kBlock);
  D().bytes[context->card] += kBlock;
  D().blocks[base] = {context, rounded, 1};
  D().ranges[base] = {size, context, base, nullptr};
  return base;
}

void EndPool(Pool* pool);

void TakeBack(std::uint64_t address) {
  const Range range = D().ranges[address];
  D().ranges.erase(address);
  if (range.pool != nullptr) {
    Pool* pool = reinterpret_cast<Pool*>(range.pool);
    pool->used -= Blocks(range.size);
    D().free_ranges.emplace(Blocks(range.size), address);
    if (pool->destroyed && pool->used == 0) {
      D().bytes[pool->card] -= pool->reserved;
      EndPool(pool);
    }
    return;
  }
  if (range.block == 0) {
    D().bytes[range.context->card] -= Blocks(range.size);
    D().free_ranges.emplace(Blocks(range.size), address);
    return;
  }
  Block& block = D().blocks[range.block];
  if (--block.live == 0) {
    D().bytes[range.context->card] -= kBlock;
    D().free_ranges.emplace(kBlock, range.block);
    D().blocks.erase(range.block);
  }
}

void TrimPool(Pool* pool, std::uint64_t keep) {
  const std::uint64_t floor = keep > pool->used ? keep : pool->used;
  if (pool->reserved > floor) {
    D().bytes[pool->card] -= pool->reserved - floor;
    pool->reserved = floor;
  }
}

void EndBindingsOf(std::uint64_t owner);
void EndContext(Context* context) {
  std::vector<std::uint64_t> owned;
  for (const auto& [address, range] : D().ranges) {
    if (range.context == context && range.pool == nullptr) owned.push_back(address);
  }
  for (const std::uint64_t address : owned) TakeBack(address);
  for (auto it = D().arrays.begin(); it != D().arrays.end();) {
    Array* array = *it++;
    if (array->context != context) continue;
    D().bytes[context->card] -= Blocks(array->bytes);
    D().arrays.erase(array);
    EndBindingsOf(reinterpret_cast<std::uint64_t>(array));
    delete array;
  }
  D().bytes[context->card] -= kContextBytes + context->heap - 8 * kMiB;
  context->alive = false;
  D().contexts.erase(context);
  D().last_ended = context;
  if (t_current == context) t_current = nullptr;
}

void EndPool(Pool* pool) {
  D().pools.erase(pool);
  D().last_pool = pool;
  D().ended_pools.push_back(pool);
}

Context* NewContext(int card) {
  Context* context = nullptr;
  if (D().reuse_handles) std::swap(context, D().last_ended);
  if (context == nullptr) context = new Context();
  *context = Context();
  context->card = card;
  D().contexts.insert(context);
  D().bytes[card] += kContextBytes;
  return context;
}

// --- the calls ---

CUresult GetUuid(CUuuid* uuid, CUdevice device) {
  if (device < 0 || device >= kCards) return CUDA_ERROR_INVALID_DEVICE;
  std::memset(uuid->bytes, device + 1, 16);
  return CUDA_SUCCESS;
}
CUresult GetCount(int* count) {
  *count = kCards;
  return CUDA_SUCCESS;
}
CUresult GetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(t_current);
  return CUDA_SUCCESS;
}
CUresult SetCurrent(CUcontext context) {
  t_current = reinterpret_cast<Context*>(context);
  return CUDA_SUCCESS;
}
CUresult GetDeviceOf(CUdevice* device, CUcontext context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = reinterpret_cast<Context*>(context)->card;
  return CUDA_SUCCESS;
}
CUresult CreateContext(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
  Lock lock(D().mutex);
  if (device < 0 || device >= kCards) return CUDA_ERROR_INVALID_DEVICE;
  t_current = NewContext(device);
  *context = reinterpret_cast<CUcontext>(t_current);
  return CUDA_SUCCESS;
}
CUresult CreateContextV2(CUcontext* context, unsigned flags, CUdevice device) {
  return CreateContext(context, nullptr, flags, device);
}
CUresult DestroyContext(CUcontext context) {
  Lock lock(D().mutex);
  if (D().contexts.count(reinterpret_cast<Context*>(context)) == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  for (int card = 0; card < kCards; ++card) {
    if (D().primary_references[card] > 0 &&
        reinterpret_cast<CUcontext>(D().primary[card]) == context)
      return CUDA_ERROR_INVALID_CONTEXT;
  }
  EndContext(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}
CUresult Retain(CUcontext* context, CUdevice device) {
  Lock lock(D().mutex);
  if (D().primary_references[device]++ == 0) D().primary[device] = NewContext(device);
  *context = reinterpret_cast<CUcontext>(D().primary[device]);
  return CUDA_SUCCESS;
}
CUresult ReleaseRetained(CUdevice device) {
  Lock lock(D().mutex);
  if (D().primary_references[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--D().primary_references[device] == 0) EndContext(D().primary[device]);
  return CUDA_SUCCESS;
}
CUresult GetState(CUdevice device, unsigned* flags, int* active) {
  Lock lock(D().mutex);
  *flags = 0;
  *active = D().primary_references[device] > 0;
  return CUDA_SUCCESS;
}
CUresult MemAlloc(CUdeviceptr* pointer, std::size_t size) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  if (pointer == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (t_current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *pointer = Give(t_current, size);
  return CUDA_SUCCESS;
}
CUresult MemAllocPitch(CUdeviceptr* pointer, std::size_t* pitch, std::size_t width,
                       std::size_t height, unsigned) {
  *pitch = (width + 1023) / 1024 * 1024;  // more than the fence guesses
  return MemAlloc(pointer, *pitch * height);
}
// The 32-bit form hands out low addresses; they are charged alike.
CUresult MemAlloc32(CUdeviceptr_v1* pointer, unsigned size) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  const std::uint64_t address = D().next_low_address;
  D().next_low_address += Blocks(size);
  D().bytes[t_current->card] += Blocks(size);
  D().ranges[address] = {size, t_current, 0, nullptr};
  *pointer = static_cast<CUdeviceptr_v1>(address);
  return CUDA_SUCCESS;
}
CUresult MemFree32(CUdeviceptr_v1 pointer) {
  Lock lock(D().mutex);
  if (D().ranges.count(pointer) == 0) return CUDA_ERROR_INVALID_VALUE;
  D().bytes[D().ranges[pointer].context->card] -= Blocks(D().ranges[pointer].size);
  D().ranges.erase(pointer);
  return CUDA_SUCCESS;
}
CUresult Attach(CUcontext* context, unsigned) {
  Lock lock(D().mutex);
  ++t_current->uses;
  *context = reinterpret_cast<CUcontext>(t_current);
  return CUDA_SUCCESS;
}
CUresult Detach(CUcontext handle) {
  Lock lock(D().mutex);
  auto* context = reinterpret_cast<Context*>(handle);
  if (--context->uses == 0) EndContext(context);
  return CUDA_SUCCESS;
}
CUresult GetLimit(std::size_t* value, CUlimit) {
  *value = t_current->heap;
  return CUDA_SUCCESS;
}
CUresult SetHeap(CUlimit limit, std::size_t value) {
  Lock lock(D().mutex);
  if (limit != CU_LIMIT_MALLOC_HEAP_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (value > t_current->heap) {
    D().bytes[t_current->card] += value - t_current->heap;
    t_current->heap = value;
  }
  return CUDA_SUCCESS;
}
// A library loads when its module is asked for.
CUresult LoadModule(CUmodule* module, const void*) {
  Lock lock(D().mutex);
  D().bytes[t_current->card] += D().code_bytes;
  D().neighbours[0] += std::exchange(D().moves_in_load, 0);
  ++D().modules;
  *module = reinterpret_cast<CUmodule>(new Array{t_current, D().code_bytes});
  return CUDA_SUCCESS;
}
CUresult UnloadModule(CUmodule module) {
  Lock lock(D().mutex);
  auto* code = reinterpret_cast<Array*>(module);
  D().bytes[code->context->card] -= code->bytes;
  --D().modules;
  delete code;
  return CUDA_SUCCESS;
}
struct LibraryObject {
  CUmodule module = nullptr;
};
CUresult LoadLibrary(CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                     CUlibraryOption*, void**, unsigned) {
  *library = reinterpret_cast<CUlibrary>(new LibraryObject());
  return CUDA_SUCCESS;
}
CUresult LibraryModule(CUmodule* module, CUlibrary handle) {
  auto* library = reinterpret_cast<LibraryObject*>(handle);
  if (library->module == nullptr) LoadModule(&library->module, nullptr);
  *module = library->module;
  return CUDA_SUCCESS;
}
CUresult UnloadLibrary(CUlibrary handle) {
  auto* library = reinterpret_cast<LibraryObject*>(handle);
  if (library->module != nullptr) UnloadModule(library->module);
  delete library;
  return CUDA_SUCCESS;
}
// Graphs: the handle of a graph is the size of its only allocation node; memory comes with the
// first launch.
CUresult GraphNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  if (nodes != nullptr && *count > 0) nodes[0] = reinterpret_cast<CUgraphNode>(graph);
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult NodeType(CUgraphNode, CUgraphNodeType* type) {
  *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  return CUDA_SUCCESS;
}
CUresult AllocNodeParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  std::memset(params, 0, sizeof *params);
  params->poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params->bytesize = reinterpret_cast<std::uint64_t>(node);
  params->dptr = kFirstAddress / 2;
  return CUDA_SUCCESS;
}
CUresult Instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  *exec = reinterpret_cast<CUgraphExec>(graph);
  return CUDA_SUCCESS;
}
CUresult LaunchGraph(CUgraphExec exec, CUstream) {
  Lock lock(D().mutex);
  ++D().allocation_calls;
  const std::uint64_t bytes = Blocks(reinterpret_cast<std::uint64_t>(exec));
  if (bytes > D().graph_bytes) {
    D().bytes[0] += bytes - D().graph_bytes;
    D().graph_bytes = bytes;
  }
  return CUDA_SUCCESS;
}
CUresult EndExec(CUgraphExec) { return CUDA_SUCCESS; }
CUresult TrimGraphs(CUdevice) {
  Lock lock(D().mutex);
  D().bytes[0] -= D().graph_bytes;
  D().graph_bytes = 0;
  return CUDA_SUCCESS;
}
CUresult GraphAttribute(CUdevice, CUgraphMem_attribute attribute, void* value) {
  Lock lock(D().mutex);
  *static_cast<cuuint64_t*>(value) =
      attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? D().graph_bytes : 0;
  return CUDA_SUCCESS;
}
CUresult MemAllocManaged(CUdeviceptr* pointer, std::size_t size, unsigned) {
  return MemAlloc(pointer, size);
}
CUresult MemFree(CUdeviceptr pointer) {
  Lock lock(D().mutex);
  if (D().fail != CUDA_SUCCESS) return Failing();
  if (D().ranges.count(pointer) == 0) return CUDA_ERROR_INVALID_VALUE;
  TakeBack(pointer);
  return CUDA_SUCCESS;
}
CUresult GetInfo(std::size_t* free, std::size_t* total) {
  Lock lock(D().mutex);
  if (t_current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const std::uint64_t all = std::uint64_t{64} << 30;
  if (free != nullptr) *free = all - D().bytes[t_current->card] - D().neighbours[t_current->card];
  if (total != nullptr) *total = all;
  return free == nullptr && total == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult TotalMem(std::size_t* bytes, CUdevice device) {
  if (device < 0 || device >= kCards) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = std::uint64_t{64} << 30;
  return CUDA_SUCCESS;
}
CUresult GetPool(CUmemoryPool* pool, CUdevice device) {
  Lock lock(D().mutex);
  Pool*& found = D().default_pools[device];
  if (found == nullptr) D().pools.insert(found = new Pool{device, 0, 0, 0, false});
  *pool = reinterpret_cast<CUmemoryPool>(found);
  return CUDA_SUCCESS;
}
CUresult PoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  Lock lock(D().mutex);
  Pool* made = nullptr;
  if (D().reuse_handles) std::swap(made, D().last_pool);
  if (made == nullptr) made = new Pool();
  *made = {props->location.id, 0, 0, 0, false};
  D().pools.insert(made);
  *pool = reinterpret_cast<CUmemoryPool>(made);
  return CUDA_SUCCESS;
}
// Whether the handle is a pool's; the real driver does not look.
bool IsAlive(CUmemoryPool handle) {
  auto* pool = reinterpret_cast<Pool*>(handle);
  const bool alive = D().pools.count(pool) != 0 && !pool->destroyed;
  if (!alive) ++D().calls_on_the_dead;
  return alive;
}
CUresult PoolDestroy(CUmemoryPool handle) {
  Lock lock(D().mutex);
  if (!IsAlive(handle)) return CUDA_ERROR_INVALID_VALUE;
  auto* pool = reinterpret_cast<Pool*>(handle);
  if (pool == D().default_pools[pool->card]) return CUDA_ERROR_INVALID_VALUE;
  TrimPool(pool, 0);
  pool->destroyed = true;
  if (pool->used == 0) EndPool(pool);
  return CUDA_SUCCESS;
}
CUresult PoolTrim(CUmemoryPool pool, std::size_t keep) {
  Lock lock(D().mutex);
  if (!IsAlive(pool)) return CUDA_ERROR_INVALID_VALUE;
  TrimPool(reinterpret_cast<Pool*>(pool), keep);
  return CUDA_SUCCESS;
}
CUresult PoolSet(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  Lock lock(D().mutex);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    reinterpret_cast<Pool*>(pool)->threshold = *static_cast<cuuint64_t*>(value);
  }
  return CUDA_SUCCESS;
}
CUresult PoolGet(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Lock lock(D().mutex);
  if (!IsAlive(handle)) return CUDA_ERROR_INVALID_VALUE;
  auto* pool = reinterpret_cast<Pool*>(handle);
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    *static_cast<cuuint64_t*>(value) = pool->reserved;
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) *static_cast<cuuint64_t*>(value) = pool->used;
  return CUDA_SUCCESS;
}
CUresult AllocFromPool(CUdeviceptr* pointer, std::size_t size, CUmemoryPool handle, CUstream) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  auto* pool = reinterpret_cast<Pool*>(handle);
  const std::uint64_t bytes = Blocks(size);
  if (pool->used + bytes > pool->reserved) {
    D().bytes[pool->card] += pool->used + bytes - pool->reserved;
    pool->reserved = pool->used + bytes;
  }
  pool->used += bytes;
  *pointer = TakeAddress(bytes);
  D().ranges[*pointer] = {size, t_current, 0, handle};
  return CUDA_SUCCESS;
}
CUresult AllocAsync(CUdeviceptr* pointer, std::size_t size, CUstream stream) {
  CUmemoryPool pool;
  GetPool(&pool, t_current->card);
  return AllocFromPool(pointer, size, pool, stream);
}
CUresult FreeAsync(CUdeviceptr pointer, CUstream) { return MemFree(pointer); }
CUresult IsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
void EndBinding(std::pair<std::uint64_t, std::uint64_t> key);
CUresult Synchronize() {
  Lock lock(D().mutex);
  for (const auto& key : D().unbound_at_synchronisation) EndBinding(key);
  D().unbound_at_synchronisation.clear();
  for (Pool* pool : D().pools) {
    if (pool->reserved > pool->threshold) TrimPool(pool, pool->threshold);
  }
  return CUDA_SUCCESS;
}
CUresult SynchronizeStream(CUstream) { return Synchronize(); }
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
CUresult CreateSparse(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR*) {
  Lock lock(D().mutex);
  auto* array = new Array{t_current, 0};
  D().arrays.insert(array);
  *handle = reinterpret_cast<CUarray>(array);
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
CUresult CreateArray(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* d) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  auto* array = new Array{t_current, d->Width * d->Height * 4};
  D().arrays.insert(array);
  D().bytes[t_current->card] += Blocks(array->bytes);
  *handle = reinterpret_cast<CUarray>(array);
  return CUDA_SUCCESS;
}
CUresult EndArray(CUarray handle) {
  Lock lock(D().mutex);
  auto* array = reinterpret_cast<Array*>(handle);
  if (D().arrays.erase(array) == 0) return CUDA_ERROR_INVALID_HANDLE;
  EndBindingsOf(reinterpret_cast<std::uint64_t>(handle));
  D().bytes[array->context->card] -= Blocks(array->bytes);
  delete array;
  return CUDA_SUCCESS;
}
CUresult ArrayRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle, CUdevice) {
  Lock lock(D().mutex);
  out->size = reinterpret_cast<Array*>(handle)->bytes;
  return CUDA_SUCCESS;
}
CUresult Import(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* d) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  *out = reinterpret_cast<CUexternalMemory>(new Array{t_current, d->size});
  return CUDA_SUCCESS;
}
CUresult EndImport(CUexternalMemory memory) {
  delete reinterpret_cast<Array*>(memory);
  return CUDA_SUCCESS;
}
CUresult LibraryKernel(CUkernel* kernel, CUlibrary library, const char*) {
  *kernel = reinterpret_cast<CUkernel>(library);
  return CUDA_SUCCESS;
}
CUresult DeviceAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 8;
  return CUDA_SUCCESS;
}
nvmlReturn_t NoNvml() { return NVML_ERROR_LIBRARY_NOT_FOUND; }
nvmlReturn_t OpenNvml() { return NVML_SUCCESS; }
nvmlReturn_t CloseNvml() { return NVML_SUCCESS; }
nvmlReturn_t NvmlDevice(const char* uuid, nvmlDevice_t* device) {
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<std::uintptr_t>(uuid[5] - '0'));
  return NVML_SUCCESS;
}
nvmlReturn_t NvmlProcesses(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* infos) {
  Lock lock(D().mutex);
  ++D().asked;
  if (!D().tells) return NVML_ERROR_NOT_SUPPORTED;
  // A list of others, longer than a first guess.
  constexpr unsigned kOthers = 700;
  const bool fits = *count > kOthers;
  *count = kOthers + 1;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < kOthers; ++i) infos[i] = {3000000 + i, 77 * kMiB, 0, 0};
  infos[kOthers] = {static_cast<unsigned>(getpid()),
                    D().bytes[static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1], 0,
                    0};
  return NVML_SUCCESS;
}

void TakePlace() {
  real::cuDeviceGetUuid_v2 = GetUuid;
  real::cuDeviceGetCount = GetCount;
  real::cuCtxGetCurrent = GetCurrent;
  real::cuCtxSetCurrent = SetCurrent;
  real::cuCtxGetDevice_v2 = Watched<Call::kGetDevice, GetDeviceOf>;
  real::cuCtxCreate_v4 = Watched<Call::kContextCreate, CreateContext>;
  real::cuCtxCreate_v2 = CreateContextV2;
  real::cuCtxDestroy_v2 = Watched<Call::kContextDestroy, DestroyContext>;
  real::cuDevicePrimaryCtxRetain = Watched<Call::kRetain, Retain>;
  real::cuDevicePrimaryCtxRelease_v2 = Watched<Call::kRelease, ReleaseRetained>;
  real::cuDevicePrimaryCtxGetState = GetState;
  real::cuMemAlloc_v2 = Watched<Call::kMemAlloc, MemAlloc>;
  real::cuMemAllocPitch_v2 = MemAllocPitch;
  real::cuMemAllocManaged = MemAllocManaged;
  real::cuMemFree_v2 = Watched<Call::kMemFree, MemFree>;
  real::cuMemGetInfo_v2 = GetInfo;
  real::cuDeviceTotalMem_v2 = TotalMem;
  real::cuDeviceGetMemPool = GetPool;
  real::cuMemPoolCreate = Watched<Call::kPoolCreate, PoolCreate>;
  real::cuMemPoolDestroy = Watched<Call::kPoolDestroy, PoolDestroy>;
  real::cuMemPoolTrimTo = Watched<Call::kPoolTrim, PoolTrim>;
  real::cuMemPoolSetAttribute = PoolSet;
  real::cuMemPoolGetAttribute = PoolGet;
  real::cuMemAllocFromPoolAsync = Watched<Call::kPoolAlloc, AllocFromPool>;
  real::cuMemAllocAsync = Watched<Call::kPoolAlloc, AllocAsync>;
  real::cuMemFreeAsync = FreeAsync;
  real::cuStreamIsCapturing = IsCapturing;
  real::cuCtxSynchronize = Synchronize;
  real::cuStreamSynchronize = SynchronizeStream;
  real::cuMemCreate = Create;
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
  real::cuArray3DCreate_v2 = CreateSparse;
  real::cuArrayCreate_v2 = Watched<Call::kCreateArray, CreateArray>;
  real::cuArrayDestroy = EndArray;
  real::cuArrayGetMemoryRequirements = ArrayRequirements;
  real::cuImportExternalMemory = Import;
  real::cuDestroyExternalMemory = EndImport;
  real::cuMemAlloc = MemAlloc32;
  real::cuMemFree = MemFree32;
  real::cuCtxAttach = Attach;
  real::cuCtxDetach = Detach;
  real::cuCtxGetLimit = GetLimit;
  real::cuCtxSetLimit = SetHeap;
  real::cuModuleLoadData = LoadModule;
  real::cuModuleUnload = UnloadModule;
  real::cuLibraryLoadData = LoadLibrary;
  real::cuLibraryGetModule = LibraryModule;
  real::cuLibraryUnload = UnloadLibrary;
  real::cuGraphGetNodes = GraphNodes;
  real::cuGraphNodeGetType = NodeType;
  real::cuGraphMemAllocNodeGetParams = AllocNodeParams;
  real::cuGraphInstantiateWithFlags = Instantiate;
  real::cuGraphLaunch = LaunchGraph;
  real::cuGraphExecDestroy = EndExec;
  real::cuDeviceGraphMemTrim = TrimGraphs;
  real::cuDeviceGetGraphMemAttribute = GraphAttribute;
  real::cuLibraryGetKernel = LibraryKernel;
  real::cuDeviceGetAttribute = DeviceAttribute;
  real::nvmlInit_v2 = NoNvml;
}

contract::PolicyFile* g_policy = nullptr;
contract::LedgerView g_ledger;
std::string g_directory;

void* MakeFile(const std::string& path, std::size_t bytes) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (map == MAP_FAILED) std::abort();
  return map;
}

}  // namespace

void Install() {
  if (g_policy != nullptr) return;
  TakePlace();
  char name[] = "/tmp/tessera-fence-test-XXXXXX";
  if (mkdtemp(name) == nullptr) std::abort();
  g_directory = name;
  g_policy =
      static_cast<contract::PolicyFile*>(MakeFile(g_directory + "/policy", sizeof *g_policy));
  contract::PolicyHeader& h = g_policy->header;
  h.magic = contract::kPolicyMagic;
  h.layout = contract::kPolicyLayout;
  h.file_bytes = sizeof *g_policy;
  h.cards_offset = offsetof(contract::PolicyFile, cards);
  h.card_stride = sizeof(contract::PolicyCard);
  h.card_count = kCards;
  h.gates_offset = offsetof(contract::PolicyFile, gates);
  h.gate_stride = sizeof(contract::PolicyGate);
  for (int i = 0; i < kCards; ++i) {
    contract::PolicyCard& card = g_policy->cards[i];
    // Not the driver's order: what counts is the UUID.
    std::memset(card.uuid, kCards - i, 16);
    card.limit_bytes = std::uint64_t{10} << 30;
    card.ceiling_bytes = std::uint64_t{64} << 30;
    card.compute_percent = 100;
    card.context_bytes = kContextBytes;
  }
  auto* ledger = static_cast<contract::LedgerFile*>(
      MakeFile(g_directory + "/ledger", sizeof(contract::LedgerFile)));
  contract::InitLedger(*ledger);
  contract::OpenLedger(ledger, sizeof *ledger, &g_ledger);
  setenv("TESSERA_SLICE_DIR", name, 1);
  std::atexit([] {
    unlink((g_directory + "/policy").c_str());
    unlink((g_directory + "/ledger").c_str());
    rmdir(g_directory.c_str());
  });
}

// Cards of the driver and of the slice stand in opposite order.
int SliceCard(int device) { return kCards - 1 - device; }

std::uint64_t DriverBytes(int card) {
  Lock lock(D().mutex);
  return D().bytes[card];
}
void FailNext(CUresult result) {
  Lock lock(D().mutex);
  D().fail = result;
}
int AllocationCalls() {
  Lock lock(D().mutex);
  return D().allocation_calls;
}
void SetNeighbourBytes(int card, std::uint64_t bytes) {
  Lock lock(D().mutex);
  D().neighbours[card] = bytes;
}
void NeighbourMovesInNextLoad(std::uint64_t bytes) {
  Lock lock(D().mutex);
  D().moves_in_load = bytes;
}
void TellOwnBytes(bool tell) {
  Lock lock(D().mutex);
  D().tells = tell;
  real::nvmlInit_v2 = tell ? OpenNvml : NoNvml;
  real::nvmlShutdown = CloseNvml;
  real::nvmlDeviceGetHandleByUUID = NvmlDevice;
  real::nvmlDeviceGetComputeRunningProcesses_v3 = NvmlProcesses;
}
int OwnBytesAsked() {
  Lock lock(D().mutex);
  return D().asked;
}
void SetCodeBytes(std::uint64_t bytes) {
  Lock lock(D().mutex);
  D().code_bytes = bytes;
}
int ModulesLoaded() {
  Lock lock(D().mutex);
  return D().modules;
}
void CloseExport(int descriptor) {
  Lock lock(D().mutex);
  EndBinding({static_cast<std::uint64_t>(descriptor), 0});
}
int CallsOnTheDead() {
  Lock lock(D().mutex);
  return D().calls_on_the_dead;
}
void Before(Call call, std::function<void()> other) {
  Lock lock(D().mutex);
  D().meanwhile[static_cast<int>(call)][0] = std::move(other);
}
void After(Call call, std::function<void()> other) {
  Lock lock(D().mutex);
  D().meanwhile[static_cast<int>(call)][1] = std::move(other);
}
void ReuseHandles(bool reuse) {
  Lock lock(D().mutex);
  D().reuse_handles = reuse;
  D().last_ended = nullptr;
  D().last_pool = nullptr;
}
void SetLimit(int card, std::uint64_t bytes) {
  contract::Store(g_policy->cards[SliceCard(card)].limit_bytes, bytes);
}
void SetKnownContextBytes(std::uint64_t bytes) {
  for (contract::PolicyCard& card : g_policy->cards) card.context_bytes = bytes;
}
contract::LedgerView& Ledger() { return g_ledger; }
std::uint64_t LedgerBytes(int card) {
  return contract::WordBytes(contract::Load(g_ledger.Card(SliceCard(card)).total));
}
std::uint64_t Held(int card, contract::Kind kind) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < g_ledger.SlotsInUse(); ++i) {
    sum += contract::WordBytes(
        contract::Load(g_ledger.Slot(i).cards[SliceCard(card)].held[static_cast<int>(kind)]));
  }
  return sum;
}
std::uint64_t Denied(int card) {
  return contract::Load(g_ledger.Card(SliceCard(card)).denied_count);
}
const std::string& SliceDirectory() { return g_directory; }

}  // namespace tessera::fence::testing
