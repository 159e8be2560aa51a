// What a program is told about memory: its slice. The driver is asked first, so that its errors and
// its checks stay.
#include "charge/charge.h"
#include "memory/contexts.h"
#include "memory/graphs.h"
#include "memory/live.h"
#include "memory/own_usage.h"
#include "memory/pools.h"
#include "real.h"

namespace tessera::fence {
namespace {

template <typename T>
T Least(T a, std::uint64_t b) {
  return static_cast<std::uint64_t>(a) < b ? a : static_cast<T>(b);
}

// The card of every context that this process can have, where the driver shows it one card only.
int g_only_card = kUnknownCard;  // atomic

int CurrentCard() {
  if (const int only = __atomic_load_n(&g_only_card, __ATOMIC_RELAXED); only >= 0) return only;
  const int card = CurrentPlace().card;
  int count = 0;
  if (card >= 0 && real::cuDeviceGetCount(&count) == CUDA_SUCCESS && count == 1) {
    __atomic_store_n(&g_only_card, card, __ATOMIC_RELAXED);
  }
  return card;
}

template <typename T>
void ShowSlice(T* free, T* total) {
  const int card = CurrentCard();
  if (card == kUnknownCard) return;
  const Figures figures = card == kForeignCard ? Figures{} : CardFigures(card);
  if (free != nullptr)
    *free = Least(*free, figures.used < figures.limit ? figures.limit - figures.used : 0);
  if (total != nullptr && card >= 0) *total = Least(*total, figures.limit);
}

template <typename T>
void ShowTotal(T* bytes, CUdevice device) {
  const int card = CardOfDevice(device);
  if (card >= 0)
    *bytes = Least(*bytes, TheSlice().policy.LimitBytes(static_cast<std::uint32_t>(card)));
}

bool Shown() {
  if (AttachSlice() != Mode::kFenced) return false;
  if (PoolsDirty()) SettleDirtyPools();
  if (GraphMemorySeen()) SettleAllGraphs();
  if (AnyUnsettled()) SettleUnsettled();
  return true;
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
  const CUresult result = real::cuMemGetInfo_v2(free, total);
  if (result == CUDA_SUCCESS && Shown()) ShowSlice(free, total);
  return result;
}

CUresult CUDAAPI cuMemGetInfo(unsigned int* free, unsigned int* total) {
  const CUresult result = real::cuMemGetInfo(free, total);
  if (result == CUDA_SUCCESS && Shown()) ShowSlice(free, total);
  return result;
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  const CUresult result = real::cuDeviceTotalMem_v2(bytes, device);
  if (result == CUDA_SUCCESS && bytes != nullptr && Shown()) ShowTotal(bytes, device);
  return result;
}

CUresult CUDAAPI cuDeviceTotalMem(unsigned int* bytes, CUdevice device) {
  const CUresult result = real::cuDeviceTotalMem(bytes, device);
  if (result == CUDA_SUCCESS && bytes != nullptr && Shown()) ShowTotal(bytes, device);
  return result;
}

}  // extern "C"
