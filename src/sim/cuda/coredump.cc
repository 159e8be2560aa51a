// Settings of core dumps: kept and given back. Nothing here crashes on a card, so none is written.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "sim/cuda/api.h"
#include "sim/cuda/context.h"

using namespace tessera::sim;

namespace {

constexpr std::size_t kPathBytes = 1024;  // longest path the driver accepts, with its end

struct Settings {
  bool on_exception, trigger_host, lightweight, user_trigger;
  unsigned flags;
  char file[kPathBytes], pipe[kPathBytes];
};
constinit std::mutex settings_mutex;
constinit Settings settings{false, true, false, false, 0, {}, {}};

struct Field {
  void* place;
  std::size_t bytes;  // 0: text
};
Field FieldOf(CUcoredumpSettings which) {
  switch (which) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
      return {&settings.on_exception, sizeof(bool)};
    case CU_COREDUMP_TRIGGER_HOST:
      return {&settings.trigger_host, sizeof(bool)};
    case CU_COREDUMP_LIGHTWEIGHT:
      return {&settings.lightweight, sizeof(bool)};
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      return {&settings.user_trigger, sizeof(bool)};
    case CU_COREDUMP_GENERATION_FLAGS:
      return {&settings.flags, sizeof(unsigned)};
    case CU_COREDUMP_FILE:
      return {settings.file, 0};
    case CU_COREDUMP_PIPE:
      return {settings.pipe, 0};
    default:
      return {nullptr, 0};
  }
}

CUresult GetSetting(CUcoredumpSettings which, void* value, std::size_t* size) {
  std::lock_guard lock(settings_mutex);
  const Field field = FieldOf(which);
  if (!field.place || !size) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t bytes =
      field.bytes ? field.bytes : std::strlen(static_cast<char*>(field.place)) + 1;
  if (value) {
    if (*size < (field.bytes ? field.bytes : 1)) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(value, field.place, std::min(bytes, *size));
  }
  *size = bytes;
  return CUDA_SUCCESS;
}

CUresult SetSetting(CUcoredumpSettings which, const void* value, const std::size_t* size) {
  std::lock_guard lock(settings_mutex);
  const Field field = FieldOf(which);
  if (!field.place || !value || !size) return CUDA_ERROR_INVALID_VALUE;
  if (field.bytes ? *size != field.bytes : *size > kPathBytes) return CUDA_ERROR_INVALID_VALUE;
  if (!field.bytes) std::memset(field.place, 0, kPathBytes);
  std::memcpy(field.place, value, field.bytes ? field.bytes : std::min(*size, kPathBytes - 1));
  return CUDA_SUCCESS;
}

CUresult InContext() {
  Context* context = nullptr;
  return CurrentContext(&context);
}

}  // namespace

SIM_API(cuCoredumpGetAttribute)(CUcoredumpSettings which, void* value, std::size_t* size) {
  SIM_TRY(InContext());
  return GetSetting(which, value, size);
}
SIM_API(cuCoredumpGetAttributeGlobal)(CUcoredumpSettings which, void* value, std::size_t* size) {
  return GetSetting(which, value, size);
}
SIM_API(cuCoredumpSetAttribute)(CUcoredumpSettings which, void* value, std::size_t* size) {
  SIM_TRY(InContext());
  return SetSetting(which, value, size);
}
SIM_API(cuCoredumpSetAttributeGlobal)(CUcoredumpSettings which, void* value, std::size_t* size) {
  return SetSetting(which, value, size);
}
