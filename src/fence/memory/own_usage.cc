#include "memory/own_usage.h"

#include "charge/charge.h"
#include "memory/driver_figure.h"
#include "memory/floating.h"
#include "memory/graphs.h"
#include "memory/physical.h"
#include "memory/pools.h"
#include "os/holder.h"
#include "os/os.h"
#include "real.h"

namespace tessera::fence {

constinit std::uint32_t detail::g_unsettled = 0;
constinit std::uint32_t detail::g_hidden_small = 0;

namespace {

// Contexts of today's cards take 100 to 600 MiB; more is not believed.
constexpr std::uint64_t kMostOfOneContext = std::uint64_t{4} << 30;
constexpr std::uint64_t kPauseNs = 20'000'000;
constexpr int kLooks = 3;

std::uint64_t g_settling = 0;    // atomic; the thread that is at it
std::uint64_t g_not_before = 0;  // atomic; CLOCK_MONOTONIC
std::int64_t
    g_correction[contract::kMaxCards];  // atomic; what kContext holds beyond its own charges

std::uint64_t ChargedBytes(int card) {
  std::uint64_t sum = 0;
  for (std::uint32_t k = 0; k < contract::kKinds; ++k) sum += OwnBytes(card, static_cast<Kind>(k));
  return sum;
}

std::uint64_t SliceBytes(int card) {
  return contract::WordBytes(
      contract::Load(TheSlice().ledger.Card(static_cast<std::uint32_t>(card)).total));
}

// Changes the charge of kContext by `bytes`; what was changed.
std::int64_t Correct(int card, std::int64_t bytes) {
  if (bytes >= 0) {
    ChargeTaken(card, Kind::kContext, static_cast<std::uint64_t>(bytes));
    return bytes;
  }
  const std::uint64_t has = OwnBytes(card, Kind::kContext);
  std::uint64_t less = static_cast<std::uint64_t>(-bytes);
  if (less > has) less = has;
  Refund(card, Kind::kContext, less);
  return -static_cast<std::int64_t>(less);
}

bool AloneInSlice() {
  const contract::LedgerView& ledger = TheSlice().ledger;
  const contract::LedgerSlot* own = OwnSlotOrNull();
  for (std::uint32_t i = 0, n = ledger.SlotsInUse(); i < n; ++i) {
    const contract::LedgerSlot& slot = ledger.Slot(i);
    if (&slot != own && contract::Load(slot.owner) != 0) return false;
  }
  return true;
}

// A slice of several processes moves all the time. Once NVML is there, its figure costs less than
// it is worth.
bool FigureIsWorthIt() { return DriverFigureIsAtHand() || !AloneInSlice(); }

void ForgetSettling() {
  ForgetUnderway();
  ForgetDriverFigure();
  ForgetFloating();
  g_settling = 0;
  g_not_before = 0;
  detail::g_unsettled = 0;
  detail::g_hidden_small = 0;
  for (std::int64_t& correction : g_correction) correction = 0;
}

// One look while `own` calls of the calling thread are under way: false when another thread of the
// process moved.
bool Look(int card, std::uint64_t own, std::uint64_t grown, Off* off) {
  const UnderwaySum before = UnderwayNow();
  *off = Off();
  if (before.calls != own) return false;
  std::uint64_t driver = 0;
  const std::uint64_t charged = ChargedBytes(card), floating = FloatingBytes(card);
  off->said = OwnDriverBytes(card, Nvml::kLoad, &driver);
  if (!off->said) return true;
  // Pools also shrink in calls that the fence does not see.
  if (!PoolsAgree(card) || !GraphsAgree() || !(UnderwayNow() == before)) return false;
  *off = CompareWithFigure(card, driver, charged, floating, grown);
  std::int64_t bytes = off->bytes;
  if (bytes < 0)
    bytes += static_cast<std::int64_t>(RefundOutstanding(card, static_cast<std::uint64_t>(-bytes)));
  if (bytes != 0) __atomic_fetch_add(&g_correction[card], Correct(card, bytes), __ATOMIC_ACQ_REL);
  RememberFigure(card, driver, ChargedBytes(card), FloatingBytes(card));
  return true;
}

Settled Settle(int card, std::uint64_t own, std::uint64_t grown) {
  if (card < 0) return Settled::kUnknown;
  // What this thread finds of its own it has left by longjmp.
  std::uint64_t nobody = 0;
  if (!__atomic_compare_exchange_n(&g_settling, &nobody, os::ThisThread(), false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE) &&
      nobody != os::ThisThread())
    return Settled::kLater;
  ResetOnFork(ForgetSettling);
  const std::uint32_t bit = 1u << card;
  Settled result = Settled::kLater;
  __atomic_fetch_and(&detail::g_unsettled, ~bit, __ATOMIC_ACQ_REL);
  for (int look = 0; look < kLooks && result == Settled::kLater; ++look) {
    Off off;
    // Pools and graphs by their own figures first: what is left over is neither's.
    SettlePoolsOf(card);
    SettleAllGraphs();
    if (!Look(card, own, grown, &off)) continue;
    result = off.between ? Settled::kBetween : off.said ? Settled::kExact : Settled::kUnknown;
  }
  if (result == Settled::kLater) {
    __atomic_store_n(&g_not_before, os::MonotonicNs() + kPauseNs, __ATOMIC_RELAXED);
    __atomic_fetch_or(&detail::g_unsettled, bit, __ATOMIC_ACQ_REL);
  }
  __atomic_store_n(&g_settling, std::uint64_t{0}, __ATOMIC_RELEASE);
  return result;
}

}  // namespace

Settled SettleOwn(int card) { return Settle(card, 0, 0); }

void BeforeFloating(int card, std::uint64_t own) {
  if (card >= 0 && AnyDoubt(card)) Settle(card, own, 0);
}

void AfterFloating(int card, std::uint64_t own) {
  if (card >= 0) Settle(card, own, 0);
}

void MarkUnsettled(int card) {
  if (card >= 0) __atomic_fetch_or(&detail::g_unsettled, 1u << card, __ATOMIC_ACQ_REL);
}

void NoteHiddenSmall(int card) {
  if (card >= 0 && (__atomic_load_n(&detail::g_hidden_small, __ATOMIC_RELAXED) >> card & 1) == 0)
    __atomic_fetch_or(&detail::g_hidden_small, 1u << card, __ATOMIC_ACQ_REL);
}

void SettleUnsettled() {
  const std::uint32_t cards = __atomic_load_n(&detail::g_unsettled, __ATOMIC_ACQUIRE);
  if (cards == 0) return;
  if (const std::uint64_t pause = __atomic_load_n(&g_not_before, __ATOMIC_RELAXED);
      pause != 0 && os::MonotonicNs() < pause)
    return;
  // NVML is loaded for others' sake only: what one alone is off by, it is off by upwards.
  if (!DriverFigureIsAtHand() && AloneInSlice()) return;
  for (int card = 0; card < static_cast<int>(contract::kMaxCards); ++card) {
    if ((cards >> card & 1) != 0) SettleOwn(card);
  }
}

void BeforeGivingBack(int card) {
  if (card < 0) return;
  std::int64_t correction = __atomic_load_n(&g_correction[card], __ATOMIC_ACQUIRE);
  while (correction < 0) {
    if (!__atomic_compare_exchange_n(&g_correction[card], &correction, std::int64_t{0}, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      continue;
    ChargeTaken(card, Kind::kContext, static_cast<std::uint64_t>(-correction));
    NoteDoubt(card, static_cast<std::uint64_t>(-correction));
    return;
  }
}

void ForgetCorrection(int card, std::int64_t more) {
  __atomic_fetch_sub(&g_correction[card], more, __ATOMIC_ACQ_REL);
}

bool UnchargedBytes(int card, std::uint64_t* bytes) {
  std::uint64_t driver = 0;
  if (AnyFloating(card) || !OwnDriverBytes(card, Nvml::kIfLoaded, &driver)) return false;
  const std::uint64_t known = ChargedBytes(card);
  *bytes = driver > known ? driver - known : 0;
  return true;
}

std::uint64_t ExpectedContextBytes(int card) {
  if (card < 0) return 0;
  const auto index = static_cast<std::uint32_t>(card);
  std::uint64_t bytes = TheSlice().policy.Card(index).context_bytes;
  if (bytes == 0) bytes = contract::Load(TheSlice().ledger.Card(index).context_bytes);
  return bytes <= kMostOfOneContext ? bytes : 0;
}

void RememberContextBytes(int card, std::uint64_t bytes) {
  if (card < 0 || bytes == 0 || bytes > kMostOfOneContext) return;
  contract::Store(TheSlice().ledger.Card(static_cast<std::uint32_t>(card)).context_bytes, bytes);
}

std::uint64_t ProbeContextBytes(CUcontext context, CUdevice device) {
  CUcontext former = nullptr;
  if (real::cuCtxGetCurrent(&former) != CUDA_SUCCESS ||
      real::cuCtxSetCurrent(context) != CUDA_SUCCESS)
    return 0;
  std::uint64_t bytes = 0;
  const Growth growth({CardOfDevice(device), 0, device});
  CUcontext probe = nullptr;
  CUresult made = real::cuCtxCreate_v2(&probe, 0, device);
  if (made == CUDA_ERROR_NOT_SUPPORTED) made = real::cuCtxCreate_v4(&probe, nullptr, 0, device);
  if (made == CUDA_SUCCESS) {
    bytes = growth.Measure(kMostOfOneContext);
    real::cuCtxDestroy_v2(probe);
    // The card must be as before: otherwise a neighbour moved, and the figure is its doing.
    if (!growth.Unchanged()) bytes = 0;
  }
  real::cuCtxSetCurrent(former);
  return bytes;
}

Growth::Growth(const Place& place) : place_(place) {
  if (place.card < 0) return;
  std::uint64_t again = 0;
  slice_bytes_ = SliceBytes(place.card);
  own_bytes_ = ChargedBytes(place.card);
  usable_ = Free(&free_) && Free(&again) && free_ == again;
}

bool Growth::Free(std::uint64_t* bytes) const {
  std::size_t free = 0, total = 0;
  if (real::cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return false;
  *bytes = free;
  return true;
}

bool Growth::Unchanged() const {
  std::uint64_t now = 0;
  return usable_ && Free(&now) && now == free_;
}

bool Growth::Change(std::int64_t* bytes) const {
  std::uint64_t now = 0, again = 0;
  if (!usable_ || !Free(&now) || !Free(&again) || now != again) return false;
  // Another process of this slice was charged or refunded meanwhile.
  if (SliceBytes(place_.card) - slice_bytes_ != ChargedBytes(place_.card) - own_bytes_)
    return false;
  *bytes = static_cast<std::int64_t>(free_) - static_cast<std::int64_t>(now);
  return true;
}

std::int64_t Growth::BooksChange() const {
  return static_cast<std::int64_t>(ChargedBytes(place_.card)) -
         static_cast<std::int64_t>(own_bytes_);
}

std::uint64_t Growth::Measure(std::uint64_t most) const {
  std::int64_t grown = 0;
  if (!Change(&grown) || grown <= 0) return 0;
  return static_cast<std::uint64_t>(grown) <= most ? static_cast<std::uint64_t>(grown) : 0;
}

Measurement::Measurement(const Place& place, std::uint64_t most)
    : place_(place),
      most_(most),
      ask_(place.card >= 0 && FigureIsWorthIt()),
      before_(UnderwayNow()),
      compared_(ask_ && AnyFloating(place.card) && Settle(place.card, 1, 0) == Settled::kBetween),
      growth_(ask_ ? Place() : place) {}

std::int64_t Measurement::ByGrowth() {
  std::int64_t card = 0;
  const UnderwaySum now = UnderwayNow();
  if (now.calls != 1 || !(now == before_) || !growth_.Change(&card)) return INT64_MIN;
  std::int64_t off = card - growth_.BooksChange();
  // That the card has more free may be a page that has left it.
  if (off < 0 && AnyFloating(place_.card)) off = 0;
  if (off > static_cast<std::int64_t>(most_) || -off > static_cast<std::int64_t>(most_))
    return INT64_MIN;
  return off;
}

std::int64_t Measurement::Finish() {
  if (done_ || place_.card < 0) return 0;
  done_ = true;
  if (!ask_) {
    const std::int64_t off = ByGrowth();
    if (off != INT64_MIN) {
      underway_.End();
      const std::int64_t corrected = Correct(place_.card, off);
      CorrectContextBytes(place_.context, corrected);
      return corrected;
    }
  }
  underway_.End();
  const std::int64_t before = __atomic_load_n(&g_correction[place_.card], __ATOMIC_ACQUIRE);
  // What the figure has grown by since it was compared before the call is the call's doing.
  const Settled settled = Settle(place_.card, 0, compared_ ? most_ : 0);
  if (settled != Settled::kExact && settled != Settled::kBetween) return 0;
  return __atomic_load_n(&g_correction[place_.card], __ATOMIC_ACQUIRE) - before;
}

bool OverLimit(int card) {
  return card >= 0 &&
         SliceBytes(card) > TheSlice().policy.LimitBytes(static_cast<std::uint32_t>(card));
}

}  // namespace tessera::fence
