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
}  // namespace tessera::fence

extern "C" {

constinit const std::uint32_t* tessera_gate_word = &tessera::fence::kAsk;

void tessera_wait_at_gate() {
  using namespace tessera::fence;
  std::atomic_ref place(tessera_gate_word);
  if (AttachSlice() != Mode::kFenced || TheSlice().from_environment) {
    place.store(&kOpen, std::memory_order_relaxed);
    return;
  }
  const tessera::contract::PolicyView& policy = TheSlice().policy;
  if (policy.card_count() == 1) {
    place.store(&policy.Gate(0).word, std::memory_order_relaxed);
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
