// Contexts: what a thread works in.
//
// Thread safety: the functions may be called from any thread; a Context's plain fields are fixed
// after creation. Invariants:
//   1. A primary context's handle exists from cuInit on and never changes; it is `active` while it
//      is retained.
//   2. A context charges its card with CardSpec::context_bytes while it is active.
//   3. Everything that belongs to a context is in its `contents`, or found by (object->context ==
//      this), and ends with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "sim/cuda/cuda_abi.h"
#include "sim/cuda/device.h"
#include "sim/cuda/handles.h"

namespace tessera::sim {

struct Stream;
struct ContextMemory;  // memory.h

struct LocalStorageEntry {  // CONTEXT_LOCAL_STORAGE of the runtime
  void* key;
  void* value;
  void (*destroy)(CUcontext, void* key, void* value);
};

inline constexpr int kLimitCount = 16;

struct Context {
  static constexpr HandleKind kKind = HandleKind::kContext;
  using Handle = CUcontext;

  CUcontext handle{};
  std::uint64_t id = 0;  // unique in the process, never 0
  const Device* device = nullptr;
  int card = 0;
  bool primary = false;
  unsigned api_version = 3020;
  std::atomic<unsigned> flags{0};
  std::atomic<bool> active{false};
  std::atomic<bool> ending{false};  // set under the work mutex
  std::atomic<int> sticky{CUDA_SUCCESS};
  std::atomic<int> references{0};  // retains of a primary context
  std::atomic<std::size_t> limits[kLimitCount]{};
  std::atomic<int> cache_config{CU_FUNC_CACHE_PREFER_NONE};
  std::atomic<int> shared_config{CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE};

  std::mutex mutex;     // guards what follows
  std::set<int> peers;  // cards whose memory this context may reach
  std::vector<LocalStorageEntry> local_storage;

  ContextMemory* memory = nullptr;  // guarded by MemoryLock

  // Owned by stream.cc: the stream behind CU_STREAM_LEGACY.
  std::atomic<Stream*> legacy_stream{nullptr};

  // Makes every later call in this context answer `error`.
  void Poison(CUresult error) {
    int none = CUDA_SUCCESS;
    sticky.compare_exchange_strong(none, error);
  }
};

// The thread's current context if there is one that may be used: not destroyed, without sticky
// error, card not lost.
CUresult CurrentContext(Context** context);
// The same without the checks; nullptr when none is current or it is gone.
Context* CurrentContextOrNull();
// Checks a context handle; NULL means the current one. INVALID_CONTEXT when unknown,
// CONTEXT_IS_DESTROYED when inactive.
CUresult FindContext(CUcontext handle, Context** context);
// Whether work may be given to this context (active, no sticky error, card not lost).
CUresult Usable(const Context& context);

// The primary context of a device, active or not.
Context& PrimaryContext(const Device& device);
CUresult RetainPrimary(const Device& device, Context** context);

void InitContexts();  // cuInit's part

// Called when a context ends, last user first: functions of the parts that keep objects of
// contexts.
void SynchronizeForEnd(Context& context);
void EndModulesOf(Context& context);
void EndStreamsOf(Context& context);
void EndMemoryOf(Context& context);

}  // namespace tessera::sim
