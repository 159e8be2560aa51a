// Contexts: charged for themselves when they are made; all that they held is refunded when they go.
#include "memory/driver_figure.h"
#include "memory/graphs.h"
#include "memory/live.h"
#include "memory/own_usage.h"
#include "memory/pools.h"
#include "memory/primary.h"
#include "real.h"

namespace tessera::fence {
namespace {

enum class Primary { kNo, kYes };

constexpr std::uint64_t kMostOfGreenContext = std::uint64_t{1} << 30;
constexpr int kProbes = 3;  // a neighbour may spoil one

// What a context that has just been made takes, where nobody knew before. `growth` was begun before
// it was made.
std::uint64_t MeasureContext(int card, CUcontext context, CUdevice device, const Growth& growth) {
  std::uint64_t bytes = 0;
  if (!UnchargedBytes(card, &bytes) && !AnyFloating(card)) bytes = growth.Measure(UINT64_MAX);
  for (int probe = 0; probe < kProbes && bytes == 0; ++probe)
    bytes = ProbeContextBytes(context, device);
  RememberContextBytes(card, bytes);
  return bytes;
}

bool PrimaryIsActive(CUdevice device) {
  unsigned flags = 0;
  int active = 1;
  return real::cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active != 0;
}

template <typename Make, typename Undo>
CUresult MakeContext(CUcontext* out, CUdevice device, Primary primary, Make&& make, Undo&& undo) {
  const int card = CardOfDevice(device);
  if (card == kUnknownCard) return make(out);
  if (card == kForeignCard) return Refuse(card, 0);
  std::uint64_t cost = ExpectedContextBytes(card);
  const Place current = cost == 0 ? CurrentPlace() : Place();
  const Growth growth(current.card == card ? current : Place());
  Underway underway;
  Reservation reserved(card, Kind::kContext, cost);
  if (!reserved.granted()) return Refuse(card, cost);
  CUcontext context = nullptr;
  const CUresult result = make(&context);
  if (result != CUDA_SUCCESS) return result;
  const std::uint32_t record = NoteContext(context, device, primary == Primary::kYes);
  if (ClaimContextCost(record)) {
    if (cost == 0) cost = MeasureContext(card, context, device, growth);
    if (!reserved.Keep(cost)) {
      // A primary context may live on with what others hold in it.
      const std::uint32_t gone = primary == Primary::kYes ? 0 : UnlinkContext(context);
      UnclaimContextCost(record);
      undo(context);
      ForgetContext(gone);
      if (primary == Primary::kYes && !PrimaryIsActive(device)) ForgetPrimaryOf(device);
      return Refuse(card, cost);
    }
    AddContextBytes(record, cost);
    underway.End();
    if (DriverFigureIsAtHand()) SettleOwn(card);
  }
  *out = context;
  return CUDA_SUCCESS;
}

void Destroy(CUcontext context) { real::cuCtxDestroy_v2(context); }

CUresult EndContext(CUcontext context, CUresult (*end)(CUcontext)) {
  const int card = ContextRecord(context) == 0 ? kUnknownCard : PlaceOf(context).card;
  Underway underway;
  const std::uint32_t record = UnlinkContext(context);
  const CUresult result = end(context);
  if (result != CUDA_SUCCESS) {
    RelinkContext(record, context);
    return result;
  }
  BeforeGivingBack(card);
  ForgetContext(record);
  underway.End();
  if (card >= 0 && DriverFigureIsAtHand()) SettleOwn(card);
  return result;
}

// The primary context of the device is gone, with its pools' and graphs' memory.
void EndPrimary(CUdevice device) {
  const int card = CardOfDevice(device);
  BeforeGivingBack(card);
  ForgetPrimaryOf(device);
  SettlePoolsOf(card);
  SettleGraphs(device);
  if (card >= 0 && DriverFigureIsAtHand()) SettleOwn(card);
}

CUresult ReleasePrimary(CUdevice device, CUresult (*release)(CUdevice)) {
  return MayEndPrimary(device, [&] { return release(device); });
}

CUresult ResetPrimary(CUdevice device, CUresult (*reset)(CUdevice)) {
  const PrimaryTurn turn(device);
  const CUresult result = reset(device);
  if (result == CUDA_SUCCESS && Fenced()) EndPrimary(device);
  return result;
}

// -1 where the driver does not say.
CUdevice DeviceOf(CUgreenCtx green) {
  CUcontext context = nullptr;
  CUdevice device = -1;
  if (real::cuCtxFromGreenCtx(&context, green) != CUDA_SUCCESS) return -1;
  if (real::cuCtxGetDevice_v2(&device, context) == CUDA_SUCCESS) return device;
  return ContextRecord(context) != 0 ? PlaceOf(context).device : -1;
}

}  // namespace

PrimaryHeld::PrimaryHeld(CUdevice device) : device_(device) {
  CUcontext context = nullptr;
  result_ = ::cuDevicePrimaryCtxRetain(&context, device);
}
PrimaryHeld::~PrimaryHeld() {
  if (result_ == CUDA_SUCCESS) ::cuDevicePrimaryCtxRelease_v2(device_);
}

CUresult WithPrimaryEnd(CUdevice device, CUresult (*call)(const void* of), const void* of) {
  const PrimaryTurn turn(device);
  const bool active = Fenced() && PrimaryIsActive(device);
  const CUresult result = call(of);
  if (active && result == CUDA_SUCCESS && !PrimaryIsActive(device)) EndPrimary(device);
  return result;
}

}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  if (!Fenced() || context == nullptr) return real::cuCtxCreate(context, flags, device);
  return MakeContext(
      context, device, Primary::kNo,
      [&](CUcontext* made) { return real::cuCtxCreate(made, flags, device); }, Destroy);
}
CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  if (!Fenced() || context == nullptr) return real::cuCtxCreate_v2(context, flags, device);
  return MakeContext(
      context, device, Primary::kNo,
      [&](CUcontext* made) { return real::cuCtxCreate_v2(made, flags, device); }, Destroy);
}
CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* params, int count,
                                unsigned int flags, CUdevice device) {
  if (!Fenced() || context == nullptr)
    return real::cuCtxCreate_v3(context, params, count, flags, device);
  return MakeContext(
      context, device, Primary::kNo,
      [&](CUcontext* made) { return real::cuCtxCreate_v3(made, params, count, flags, device); },
      Destroy);
}
CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* params, unsigned int flags,
                                CUdevice device) {
  if (!Fenced() || context == nullptr) return real::cuCtxCreate_v4(context, params, flags, device);
  return MakeContext(
      context, device, Primary::kNo,
      [&](CUcontext* made) { return real::cuCtxCreate_v4(made, params, flags, device); }, Destroy);
}

CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
  if (!Fenced()) return real::cuCtxDestroy(context);
  return EndContext(context, real::cuCtxDestroy);
}
CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context) {
  if (!Fenced()) return real::cuCtxDestroy_v2(context);
  return EndContext(context, real::cuCtxDestroy_v2);
}

// The old usage count: a context lives until it is detached as often as it was attached, creation
// included.
CUresult CUDAAPI cuCtxAttach(CUcontext* context, unsigned int flags) {
  if (!Fenced() || context == nullptr) return real::cuCtxAttach(context, flags);
  CUcontext attached = nullptr;
  const CUresult result = real::cuCtxAttach(&attached, flags);
  if (result != CUDA_SUCCESS) return result;
  AddAttachment(PlaceOf(attached).context, 1);
  *context = attached;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxDetach(CUcontext context) {
  const std::uint32_t record = Fenced() ? ContextRecord(context) : 0;
  if (record == 0) return real::cuCtxDetach(context);
  const CUresult result = AddAttachment(record, -1) < 0 ? EndContext(context, real::cuCtxDetach)
                                                        : real::cuCtxDetach(context);
  if (result != CUDA_SUCCESS) AddAttachment(record, 1);
  return result;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (!Fenced() || context == nullptr) return real::cuDevicePrimaryCtxRetain(context, device);
  const PrimaryTurn turn(device);
  if (PrimaryIsActive(device) && PrimaryIsKnown(device))
    return real::cuDevicePrimaryCtxRetain(context, device);
  return MakeContext(
      context, device, Primary::kYes,
      [&](CUcontext* made) { return real::cuDevicePrimaryCtxRetain(made, device); },
      [&](CUcontext) { real::cuDevicePrimaryCtxRelease_v2(device); });
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  return ReleasePrimary(device, real::cuDevicePrimaryCtxRelease);
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return ReleasePrimary(device, real::cuDevicePrimaryCtxRelease_v2);
}
CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
  return ResetPrimary(device, real::cuDevicePrimaryCtxReset);
}
CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return ResetPrimary(device, real::cuDevicePrimaryCtxReset_v2);
}

// A green context is a partition of the primary one, which it makes and keeps: what it adds to that
// is small and only the driver knows it.
CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc description,
                                  CUdevice device, unsigned int flags) {
  if (!Fenced() || CardOfDevice(device) == kUnknownCard)
    return real::cuGreenCtxCreate(context, description, device, flags);
  if (CardOfDevice(device) == kForeignCard) return Refuse(kForeignCard, 0);
  const PrimaryHeld primary(device);
  if (primary.result() != CUDA_SUCCESS) return primary.result();
  const Place place = CurrentPlace();
  const Measurement measurement(place.device == device ? place : Place(), kMostOfGreenContext);
  return real::cuGreenCtxCreate(context, description, device, flags);
}
CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx context) {
  if (!Fenced()) return real::cuGreenCtxDestroy(context);
  const Place place = CurrentPlace();
  const Measurement measurement(place, kMostOfGreenContext);
  BeforeGivingBack(place.card);
  const CUdevice device = DeviceOf(context);
  if (device < 0) return real::cuGreenCtxDestroy(context);
  return MayEndPrimary(device, [&] { return real::cuGreenCtxDestroy(context); });
}

// Stack, printf buffer and device heap: the driver takes them at once or with the next launch.
CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
  if (!Fenced()) return real::cuCtxSetLimit(limit, value);
  const Place place = CurrentPlace();
  if (place.card == kForeignCard) return Refuse(place.card, value);
  if (place.card < 0 || place.context == 0) return real::cuCtxSetLimit(limit, value);
  size_t before = 0;
  const bool known = real::cuCtxGetLimit(&before, limit) == CUDA_SUCCESS;
  // A heap that cannot fit is refused before the driver takes it.
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && known && value > before) {
    Reservation fits(place.card, Kind::kContext, value - before);
    if (!fits.granted()) return Refuse(place.card, value - before);
  }
  const Measurement measurement(
      place, value > kMaxAllocation / 2 ? kMaxAllocation : value * 2 + kBlockBytes);
  return real::cuCtxSetLimit(limit, value);
}

}  // extern "C"
