// A libcuda.so.1 that does nothing, as fast as it can be done: what remains when a benchmark calls
// it through the fence is the fence. Only what the fence and the benchmark ask back has an answer:
// cards, contexts, addresses, sizes, names.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define NULL_API(name) extern "C" __attribute__((visibility("default"))) CUresult name

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kBlock = 2 * kMiB;
constexpr std::uint64_t kCardBytes = std::uint64_t{1}
                                     << 40;  // nothing here is ever refused by the card
constexpr std::uint64_t kContextBytes = 300 * kMiB;
constexpr unsigned char kUuid[16] = {0x7e, 0x55, 0xe7, 0xa0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

int context_object;
std::atomic<std::uint64_t> used_bytes{0};

// Addresses like the driver's: large pieces are whole blocks, small ones share blocks. Freed
// addresses are given out again newest first. Single-threaded by design: the benchmarks that
// allocate do so from one thread.
struct Arena {
  std::uint64_t next;
  std::uint64_t step;
  std::uint64_t* free_list;
  std::size_t free_count;

  std::uint64_t Take() {
    if (free_count > 0) return free_list[--free_count];
    std::uint64_t at = next;
    next += step;
    return at;
  }
  void Give(std::uint64_t at) { free_list[free_count++] = at; }
};

constexpr std::size_t kMostLive = 1 << 17;
std::uint64_t small_free[kMostLive], large_free[kMostLive];
constexpr std::uint64_t kSmallBase = std::uint64_t{1} << 44;
constexpr std::uint64_t kLargeBase = std::uint64_t{1} << 45;
Arena small_arena = {kSmallBase, 4096, small_free, 0};
Arena large_arena = {kLargeBase, kBlock, large_free, 0};

struct Name {
  const char* text;
  void* function;
};

}  // namespace

// cuda.h declares most of them with other parameters; only addresses are needed.
extern "C" {
#define NAME(text, function) extern char address_of_##function[] __asm__(text);
#include "null_names.inc"
#undef NAME
}

namespace {

const Name kNames[] = {
#define NAME(text, function) {text, address_of_##function},
#include "null_names.inc"
#undef NAME
};
constexpr std::size_t kNameCount = sizeof kNames / sizeof kNames[0];

constexpr std::size_t kSlots = 4096;
std::uint16_t slots[kSlots];  // index + 1 into kNames
std::atomic<int> slots_ready{0};

std::size_t HashOf(const char* text, std::size_t length) {
  std::uint64_t hash = 1469598103934665603u;
  for (std::size_t i = 0; i < length; ++i) {
    hash = (hash ^ static_cast<unsigned char>(text[i])) * 1099511628211u;
  }
  return static_cast<std::size_t>(hash >> 20) % kSlots;
}

void FillSlots() {
  if (slots_ready.load(std::memory_order_acquire) == 2) return;
  int expected = 0;
  if (!slots_ready.compare_exchange_strong(expected, 1)) {
    while (slots_ready.load() != 2) {
    }
    return;
  }
  for (std::size_t i = 0; i < kNameCount; ++i) {
    std::size_t at = HashOf(kNames[i].text, std::strlen(kNames[i].text));
    while (slots[at] != 0) at = (at + 1) % kSlots;
    slots[at] = static_cast<std::uint16_t>(i + 1);
  }
  slots_ready.store(2, std::memory_order_release);
}

void* FindName(const char* text) {
  std::size_t at = HashOf(text, std::strlen(text));
  for (; slots[at] != 0; at = (at + 1) % kSlots) {
    if (std::strcmp(kNames[slots[at] - 1].text, text) == 0) return kNames[slots[at] - 1].function;
  }
  return nullptr;
}

}  // namespace

NULL_API(cuGetProcAddress_v2)(const char* symbol, void** function, int version, cuuint64_t flags,
                              CUdriverProcAddressQueryResult* status) {
  FillSlots();
  char name[96];
  std::size_t length = std::strlen(symbol);
  if (length > 80) return CUDA_ERROR_NOT_FOUND;
  std::memcpy(name, symbol, length + 1);
  void* found = nullptr;
  // Newest form first, as far as the version allows; enough of the driver's rule for a benchmark.
  const char* forms[] = {"_v2", ""};
  for (const char* form : forms) {
    if (version < 3020 && form[0] != 0) continue;
    std::strcpy(name + length, form);
    if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0) {
      std::size_t end = std::strlen(name);
      std::strcpy(name + end, "_ptsz");
      found = FindName(name);
      if (found != nullptr) break;
      name[end] = 0;
    }
    found = FindName(name);
    if (found != nullptr) break;
  }
  *function = found;
  if (status != nullptr) {
    *status = found != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

NULL_API(cuGetProcAddress)(const char* symbol, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

NULL_API(cuDriverGetVersion)(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
NULL_API(cuDeviceGetCount)(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
NULL_API(cuDeviceGet)(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}
NULL_API(cuDeviceGetUuid_v2)(CUuuid* uuid, CUdevice) {
  std::memcpy(uuid->bytes, kUuid, sizeof kUuid);
  return CUDA_SUCCESS;
}
NULL_API(cuDeviceGetUuid)(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}
NULL_API(cuDeviceGetAttribute)(int* value, CUdevice_attribute, CUdevice) {
  *value = 1;
  return CUDA_SUCCESS;
}
NULL_API(cuDeviceTotalMem_v2)(std::size_t* bytes, CUdevice) {
  *bytes = kCardBytes;
  return CUDA_SUCCESS;
}
NULL_API(cuCtxCreate_v2)(CUcontext* context, unsigned int, CUdevice) {
  used_bytes += kContextBytes;
  *context = reinterpret_cast<CUcontext>(&context_object);
  return CUDA_SUCCESS;
}
NULL_API(cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device) {
  return cuCtxCreate_v2(context, 0, device);
}
NULL_API(cuCtxGetCurrent)(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(&context_object);
  return CUDA_SUCCESS;
}
NULL_API(cuCtxGetDevice)(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
NULL_API(cuCtxGetDevice_v2)(CUdevice* device, CUcontext) {
  *device = 0;
  return CUDA_SUCCESS;
}
NULL_API(cuCtxGetId)(CUcontext, unsigned long long* id) {
  *id = 1;
  return CUDA_SUCCESS;
}
NULL_API(cuMemAlloc_v2)(CUdeviceptr* pointer, std::size_t bytes) {
  *pointer = bytes <= 4096 ? small_arena.Take() : large_arena.Take();
  return CUDA_SUCCESS;
}
NULL_API(cuMemFree_v2)(CUdeviceptr pointer) {
  (pointer >= kLargeBase ? large_arena : small_arena).Give(pointer);
  return CUDA_SUCCESS;
}
NULL_API(cuMemGetInfo_v2)(std::size_t* free, std::size_t* total) {
  *total = kCardBytes;
  *free = kCardBytes - used_bytes.load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}
