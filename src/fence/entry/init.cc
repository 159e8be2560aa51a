// cuInit: attaches the slice, and shows the driver the slice's cards only.
//
// A slice that cannot be used gives CUDA_ERROR_OPERATING_SYSTEM: the driver stays uninitialised, so
// nothing can be had from it.
#include <atomic>
#include <cstdint>

#include "entry/refusal.h"
#include "entry/visible.h"
#include "os/os.h"
#include "real.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

constexpr std::string_view kVariable = "CUDA_VISIBLE_DEVICES";
constexpr std::string_view kAssign = "CUDA_VISIBLE_DEVICES=";
constexpr std::uint64_t kPatienceNs = 1'000'000'000;

// The environment is exchanged once for all threads that are inside cuInit at the same time: the
// driver reads it in the first. Invariant: no thread is inside the driver while it holds the lock.
constinit os::SpinMutex lock;
constinit std::uint32_t inside = 0;
constinit char assignment[kAssign.size() + contract::kMaxCards * (kUuidTextBytes + 1) + 1] = {};
alignas(os::EnvironmentSwap) constinit unsigned char swap_place[sizeof(os::EnvironmentSwap)] = {};

os::EnvironmentSwap* Swap() { return reinterpret_cast<os::EnvironmentSwap*>(swap_place); }

void WriteAssignment() {
  const contract::PolicyView& policy = TheSlice().policy;
  VisibleCard cards[contract::kMaxCards];
  const std::uint32_t count =
      policy.card_count() < contract::kMaxCards ? policy.card_count() : contract::kMaxCards;
  for (std::uint32_t i = 0; i < count; ++i) {
    const contract::PolicyCard& card = policy.Card(i);
    for (int byte = 0; byte < 16; ++byte) cards[i].uuid[byte] = card.uuid[byte];
    cards[i].is_mig = (card.flags & contract::kCardIsMig) != 0;
  }
  char* at = assignment;
  for (char c : kAssign) *at++ = c;
  const std::string_view value = VisibleDevices({cards, count}, os::Environment(kVariable.data()),
                                                {at, sizeof assignment - kAssign.size() - 1});
  at[value.size()] = '\0';
}

// The thread that was inside the driver is not in the child: the environment is put back for it.
void ForgetAfterFork() {
  lock = os::SpinMutex();
  if (inside != 0) Swap()->~EnvironmentSwap();
  inside = 0;
}

bool Enter() {
  static constinit std::atomic<std::uint32_t> watching = 0;
  if (watching.exchange(1) == 0) ResetOnFork(ForgetAfterFork);
  if (!lock.LockFor(kPatienceNs)) return false;
  if (inside++ == 0) {
    WriteAssignment();
    new (swap_place) os::EnvironmentSwap(kVariable, assignment);
  }
  const bool active = Swap()->active();
  lock.Unlock();
  return active;
}

void Leave() {
  // A thread that was stopped, or left by longjmp, may hold it for ever. The environment then keeps
  // the slice's own cards.
  if (!lock.LockFor(kPatienceNs)) return;
  if (--inside == 0) Swap()->~EnvironmentSwap();
  lock.Unlock();
}

}  // namespace
}  // namespace tessera::fence

extern "C" CUresult CUDAAPI cuInit(unsigned int flags) {
  namespace fence = tessera::fence;
  if (fence::SliceRefused()) return CUDA_ERROR_OPERATING_SYSTEM;
  if (fence::AttachSlice() != fence::Mode::kFenced || fence::TheSlice().from_environment)
    return fence::real::cuInit(flags);
  if (!fence::Enter()) {
    fence::os::Complain(
        {"CUDA_VISIBLE_DEVICES cannot be set for the driver: out of memory, or another thread was "
         "stopped inside cuInit"});
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  const CUresult result = fence::real::cuInit(flags);
  fence::Leave();
  return result;
}
