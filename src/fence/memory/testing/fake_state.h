// What the fake driver is made of: shared by its files, one for each family of calls. Tests include
// fake_driver.h.
//
// Thread safety: the driver is touched only with its mutex held (Lock).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "memory/testing/fake_driver.h"
#include "real.h"

namespace tessera::fence::testing::fake {

inline constexpr std::uint64_t kBlock = 2 * kMiB;
inline constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 40;

inline std::uint64_t Blocks(std::uint64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

// Bytes given out, and the most that ever were.
class Tracked {
 public:
  operator std::uint64_t() const { return now_; }
  void operator+=(std::uint64_t bytes) {
    now_ += bytes;
    if (now_ > high_) high_ = now_;
  }
  void operator-=(std::uint64_t bytes) { now_ -= bytes; }
  std::uint64_t TakeHigh() { return std::exchange(high_, now_); }

 private:
  std::uint64_t now_ = 0, high_ = 0;
};

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
  bool managed = false;
  std::uint64_t resident = 0;  // of managed memory
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

// Its kernel's handle is its own, one higher.
struct LibraryObject {
  std::map<Context*, CUmodule> modules;
  bool keeps_primary = false;
};

struct Driver {
  std::recursive_mutex mutex;
  Tracked bytes[kCards];
  std::uint64_t neighbours[kCards] = {};
  std::uint64_t moves_in_load = 0;
  std::pair<CUdeviceptr, std::uint64_t> pages_in_load = {};
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
  Pool* current_pools[kCards] = {};  // null: the default one
  bool capturing = false;
  std::map<std::uint64_t, Physical> physical;
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>>
      mappings;  // address -> size, handle
  std::set<Array*> arrays;
  std::set<LibraryObject*> libraries;
  std::set<Context*> contexts;
  Context* primary[kCards] = {};
  int primary_references[kCards] = {};
  std::uint64_t next_handle = 0x1000;
  std::uint64_t next_low_address = 64 * kMiB;
  std::vector<std::vector<GraphNode>> graphs;                         // by handle - 1
  std::map<CUdeviceptr, std::pair<int, std::uint64_t>> graph_memory;  // address -> card, bytes
  std::pair<std::uint64_t, bool> grow_in_launch = {};                 // bytes, in use
  std::uint64_t graph_bytes_in_use = 0;
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

Driver& D();
extern thread_local Context* t_current;

using Lock = std::lock_guard<std::recursive_mutex>;

void RunOther(Call call, int when);
// The driver's function with what other threads do around it.
template <Call kCall, auto kFunction, typename... Arguments>
CUresult Watched(Arguments... arguments) {
  RunOther(kCall, 0);
  const CUresult result = kFunction(arguments...);
  RunOther(kCall, 1);
  return result;
}

// What the next call of allocation is to fail with.
CUresult Failing();
// fake_linear.cc
std::uint64_t TakeAddress(std::uint64_t bytes);
void TakeBack(std::uint64_t address);
CUresult MemFree(CUdeviceptr pointer);
// fake_pools.cc
void EndPool(Pool* pool);
// fake_code.cc
void EndCodeOf(Context* context);
// fake_physical.cc
void EndBinding(std::pair<std::uint64_t, std::uint64_t> key);
void EndBindingsOf(std::uint64_t owner);

// Put the functions of a family in the driver's place.
void PlaceContexts();
void PlaceLinear();
void PlacePools();
void PlacePhysical();
void PlaceArrays();
void PlaceCode();
void PlaceGraphs();
void PlaceFigures();

}  // namespace tessera::fence::testing::fake
