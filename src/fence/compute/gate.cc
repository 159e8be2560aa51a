#include "compute/gate.h"

#include "contract/atomics.h"
#include "os/os.h"
#include "real.h"
#include "slice/cards.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

constexpr std::uint32_t kOpen = 0;
constexpr std::uint32_t kAsk = 1;  // not 0: the thunk takes the slow path
// A wake may be missed (the policy's gate is opened by a plain store): the longest that an open
// gate goes unnoticed.
constexpr std::uint64_t kLookEveryNs = 5'000'000;

std::uint32_t g_watched = 0;  // atomic; launches are to come by here

// Whichever of this and WatchLaunches comes last, launches that are watched take the slow path.
void Remember(const std::uint32_t* word) {
  std::atomic_ref place(tessera_gate_word);
  place.store(word);
  if (std::atomic_ref(g_watched).load() != 0) place.store(&kAsk);
}

// The agent's heart: without it nobody would ever open the gate. A beat from the future belongs to
// another boot or clock.
bool Guarded() {
  const std::uint64_t beat = contract::Load(TheSlice().policy.header().heartbeat_ns);
  if (beat == 0) return false;
  const std::uint64_t now = os::MonotonicNs();
  return now < beat ? beat - now < kHeartStopsNs : now - beat < kHeartStopsNs;
}

void WaitAt(const std::uint32_t& word) {
  for (;;) {
    const std::uint32_t closed = contract::Load(word);
    if (closed == 0 || !Guarded()) return;
    os::FutexWait(&word, closed, kLookEveryNs);
  }
}

int CurrentCard() {
  CUdevice device = 0;
  if (real::cuCtxGetDevice(&device) != CUDA_SUCCESS) return kUnknownCard;
  return CardOfDevice(device);
}

}  // namespace

void WatchLaunches(bool watch) {
  std::atomic_ref(g_watched).store(watch ? 1u : 0u);
  if (watch) std::atomic_ref(tessera_gate_word).store(&kAsk);
}

bool LaunchesAreWatched() { return __atomic_load_n(&g_watched, __ATOMIC_ACQUIRE) != 0; }

}  // namespace tessera::fence

extern "C" {

constinit const std::uint32_t* tessera_gate_word = &tessera::fence::kAsk;

void tessera_wait_at_gate() {
  using namespace tessera::fence;
  if (AttachSlice() != Mode::kFenced || TheSlice().from_environment) {
    Remember(&kOpen);
    return;
  }
  const tessera::contract::PolicyView& policy = TheSlice().policy;
  if (policy.card_count() == 1) {
    Remember(&policy.Gate(0).word);
    WaitAt(policy.Gate(0).word);
    return;
  }
  bool closed = false;
  for (std::uint32_t card = 0; card < policy.card_count(); ++card) {
    closed = closed || tessera::contract::LoadRelaxed(policy.Gate(card).word) != 0;
  }
  if (!closed) return;
  const int card = CurrentCard();
  if (card >= 0) WaitAt(policy.Gate(static_cast<std::uint32_t>(card)).word);
}

}  // extern "C"
