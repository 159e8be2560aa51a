// The tables that NVIDIA's user-space libraries ask for by cuGetExportTable before they work on a
// driver.
//
// NVIDIA documents none of them. What is here is what ZLUDA's published notes say (vosen/ZLUDA,
// MIT/Apache-2.0, "dark API": identifiers, slots, the key and the layout of the integrity message),
// checked by running the unmodified libraries against this driver. The integrity answer is HMAC-MD2
// (RFC 2104, RFC 1319). This file serves tests on machines without a card and is never shipped.
#include <pthread.h>
#include <unistd.h>

#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/architecture.h"
#include "sim/cuda/context.h"
#include "sim/cuda/hmac_md2.h"
#include "sim/cuda/stream.h"

namespace tessera::sim {
namespace {

using Word = const void*;

CUresult Unknown() { return CUDA_ERROR_NOT_SUPPORTED; }

template <typename F>
constexpr Word At(F* function) {
  return reinterpret_cast<Word>(function);
}
Word Bytes(std::size_t words) { return reinterpret_cast<Word>(words * sizeof(Word)); }

// CUDART_INTERFACE: loading and the handle of a primary context that nobody retained.
CUresult PrimaryHandle(CUcontext* context, CUdevice ordinal) {
  const Device* device = FindDevice(ordinal);
  if (!context || !device) return CUDA_ERROR_INVALID_VALUE;
  *context = PrimaryContext(*device).handle;
  return CUDA_SUCCESS;
}
CUresult LoadFatBinary(CUmodule* module, const void* wrapper) {
  return impl_cuModuleLoadData(module, wrapper);
}
CUresult LoadFatBinaryWith(CUmodule* module, const void* wrapper, void*, void*, unsigned) {
  return impl_cuModuleLoadData(module, wrapper);
}
CUresult LoadFatBinaryHeader(const void* header, CUmodule* module, void*, void*, unsigned) {
  return impl_cuModuleLoadFatBinary(module, header);
}
void Ignore(std::size_t) {}
CUresult LoadCompilers() { return CUDA_SUCCESS; }

// TOOLS_RUNTIME_CALLBACK_HOOKS: flags that a profiler would set; all stay off. 1,024 are more than
// any runtime reads.
constexpr std::size_t kHookFlags = 1024;
int hook_flags_a[kHookFlags];
int hook_flags_b[kHookFlags];
void HooksA(void** flags, std::size_t* count) {
  *flags = hook_flags_a;
  *count = kHookFlags;
}
void HooksB(void** flags, std::size_t* count) {
  *flags = hook_flags_b;
  *count = kHookFlags;
}

CUresult ToolsCurrent(CUcontext* context) { return impl_cuCtxGetCurrent(context); }

// CONTEXT_LOCAL_STORAGE: values that a runtime keeps with a context, destroyed with it.
Context* Named(CUcontext handle) { return handle ? Find<Context>(handle) : CurrentContextOrNull(); }

CUresult PutLocal(CUcontext handle, void* key, void* value,
                  void (*destroy)(CUcontext, void*, void*)) {
  Context* context = Named(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard lock(context->mutex);
  for (LocalStorageEntry& entry : context->local_storage)
    if (entry.key == key) {
      entry = {key, value, destroy};
      return CUDA_SUCCESS;
    }
  context->local_storage.push_back({key, value, destroy});
  return CUDA_SUCCESS;
}

CUresult DeleteLocal(CUcontext handle, void* key) {
  Context* context = Named(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard lock(context->mutex);
  return std::erase_if(context->local_storage,
                       [&](const LocalStorageEntry& e) { return e.key == key; })
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}

CUresult GetLocal(void** value, CUcontext handle, void* key) {
  Context* context = Named(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard lock(context->mutex);
  for (const LocalStorageEntry& entry : context->local_storage)
    if (entry.key == key) {
      *value = entry.value;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult CheckContext(CUcontext, unsigned* result, const void**) {
  *result = 0;
  return CUDA_SUCCESS;
}
unsigned NoRestriction() { return 0; }

CUresult ContextId(CUcontext context, unsigned long long* id) {
  return impl_cuCtxGetId(context, id);
}
CUresult StreamObject(CUcontext, CUstream handle, void** object) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  *object = handle;
  return CUDA_SUCCESS;
}
CUresult StreamId(CUcontext, CUstream handle, std::uint64_t* id) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  *id = stream->id;
  return CUDA_SUCCESS;
}

CUresult Integrity(unsigned version, std::uint64_t seconds, std::uint8_t* out);

constexpr std::size_t kInternals = 95, kNvJet = 64;
Word cudart_interface[13];
Word callback_hooks[7];
Word tools_tls[4];
Word local_storage[4];
Word context_checks[4];
Word integrity_check[3];
Word internals[kInternals];
Word nvjet[kNvJet];

template <std::size_t N>
void Prepare(Word (&table)[N]) {
  for (Word& word : table) word = At(&Unknown);
  table[0] = Bytes(N);
}

bool FillTables() {
  Prepare(cudart_interface);
  cudart_interface[1] = At(&LoadFatBinary);
  cudart_interface[2] = At(&PrimaryHandle);
  cudart_interface[6] = At(&LoadFatBinaryWith);
  cudart_interface[7] = At(&Ignore);
  cudart_interface[8] = At(&LoadFatBinaryHeader);
  cudart_interface[12] = At(&LoadCompilers);
  Prepare(callback_hooks);
  callback_hooks[2] = At(&HooksA);
  callback_hooks[6] = At(&HooksB);
  Prepare(tools_tls);
  tools_tls[2] = At(&ToolsCurrent);
  // This one has no size word and ends with a null.
  local_storage[0] = At(&PutLocal);
  local_storage[1] = At(&DeleteLocal);
  local_storage[2] = At(&GetLocal);
  local_storage[3] = nullptr;
  Prepare(context_checks);
  context_checks[2] = At(&CheckContext);
  context_checks[3] = At(&NoRestriction);
  Prepare(integrity_check);
  integrity_check[1] = At(&Integrity);
  Prepare(internals);
  internals[4] = At(&ContextId);
  internals[39] = At(&StreamId);
  internals[51] = At(&StreamObject);
  Prepare(nvjet);
  return true;
}

struct Named16 {
  std::uint8_t id[16];
  const Word* table;
};
const Named16 kTables[] = {
    {{0x6B, 0xD5, 0xFB, 0x6C, 0x5B, 0xF4, 0xE7, 0x4A, 0x89, 0x87, 0xD9, 0x39, 0x12, 0xFD, 0x9D,
      0xF9},
     cudart_interface},
    {{0xA0, 0x94, 0x79, 0x8C, 0x2E, 0x74, 0x2E, 0x74, 0x93, 0xF2, 0x08, 0x00, 0x20, 0x0C, 0x0A,
      0x66},
     callback_hooks},
    {{0x42, 0xD8, 0x5A, 0x81, 0x23, 0xF6, 0xCB, 0x47, 0x82, 0x98, 0xF6, 0xE7, 0x8A, 0x3A, 0xEC,
      0xDC},
     tools_tls},
    {{0xC6, 0x93, 0x33, 0x6E, 0x11, 0x21, 0xDF, 0x11, 0xA8, 0xC3, 0x68, 0xF3, 0x55, 0xD8, 0x95,
      0x93},
     local_storage},
    {{0x26, 0x3E, 0x88, 0x60, 0x7C, 0xD2, 0x61, 0x43, 0x92, 0xF6, 0xBB, 0xD5, 0x00, 0x6D, 0xFA,
      0x7E},
     context_checks},
    {{0xD4, 0x08, 0x20, 0x55, 0xBD, 0xE6, 0x70, 0x4B, 0x8D, 0x34, 0xBA, 0x12, 0x3C, 0x66, 0xE1,
      0xF2},
     integrity_check},
    {{0x21, 0x31, 0x8C, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8C, 0xA6, 0x41, 0xFF, 0x73, 0x24, 0xC8,
      0xF2},
     internals},
    {{0x17, 0x34, 0xDC, 0x26, 0x80, 0x0D, 0x47, 0x45, 0x87, 0x26, 0xC0, 0xF1, 0xE7, 0xDD, 0x8B,
      0xCA},
     nvjet},
};

// The answers to the first two questions are fixed; the third is a keyed hash over what the runtime
// can see of this driver.
CUresult Integrity(unsigned version, std::uint64_t seconds, std::uint8_t* out) {
  static constexpr std::uint64_t kFixed[2][2] = {{0x3341181C03CB675C, 0x8ED383AA1F4CD1E8},
                                                 {0x1841181C03CB675C, 0x8ED383AA1F4CD1E8}};
  if (version % 10 < 2) {
    std::memcpy(out, kFixed[version % 10], kMd2Bytes);
    return CUDA_SUCCESS;
  }
  static constexpr std::uint8_t kKey[kMd2Bytes] = {0x14, 0x6A, 0xDD, 0xAE, 0x53, 0xA9, 0xA7, 0x52,
                                                   0xAA, 0x08, 0x41, 0x36, 0x0B, 0xF5, 0x5A, 0x9F};
  std::uint8_t message[64 + kMaxCards * 28];
  std::size_t size = 0;
  const auto put = [&](auto value) {
    std::memcpy(message + size, &value, sizeof value);
    size += sizeof value;
  };
  int driver = 0;
  SIM_TRY(impl_cuDriverGetVersion(&driver));
  put(static_cast<std::uint32_t>(driver));
  put(static_cast<std::uint32_t>(version));
  put(static_cast<std::uint32_t>(getpid()));
  put(static_cast<std::uint32_t>(pthread_self()));
  put(reinterpret_cast<std::uint64_t>(cudart_interface));
  put(reinterpret_cast<std::uint64_t>(integrity_check));
  put(reinterpret_cast<std::uint64_t>(integrity_check[1]));
  put(seconds);
  for (int i = 0; i < DeviceCount(); ++i) {
    const CardSpec& spec = *FindDevice(i)->spec;
    std::memcpy(message + size, spec.uuid, 16);
    size += 16;
    put(static_cast<std::int32_t>(spec.pci_domain));
    put(static_cast<std::int32_t>(spec.pci_bus));
    put(static_cast<std::int32_t>(spec.pci_device));
  }
  std::uint8_t digest[kMd2Bytes];
  HmacMd2(kKey, message, size, digest);
  std::memcpy(out, digest, kMd2Bytes);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tessera::sim

SIM_API(cuGetExportTable)(const void** table, const CUuuid* id) {
  using namespace tessera::sim;
  if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
  static const bool filled = FillTables();
  *table = nullptr;
  for (const Named16& named : kTables)
    if (filled && std::memcmp(named.id, id->bytes, sizeof named.id) == 0) {
      *table = named.table;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_VALUE;
}
