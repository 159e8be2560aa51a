// Threads that ask the driver for memory that nobody has reserved take turns: each card has one.
//
// Thread safety: any thread. Invariant: the wait is bounded. A turn that does not end (a thread
// that was stopped, or left the call by longjmp) is taken over: by the same thread at once, by
// another after kPatience; what then may go wrong is one more block of 2 MiB for the length of a
// call.
#pragma once

#include <cstdint>

namespace tessera::fence {

class Turn {
 public:
  Turn() = default;
  ~Turn() {
    if (place_ != nullptr) End();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  // Until the turn at `place` (0 = nobody's) is this thread's.
  void Wait(std::uint64_t* place, std::uint64_t patience_ns);
  // At memory of a card that nobody has reserved; `card` is one of the slice, or nothing is waited
  // for. What may go wrong when a turn is taken over is one more block of 2 MiB for the length of a
  // call.
  void Wait(int card);

 private:
  void End();
  std::uint64_t* place_ = nullptr;
};

}  // namespace tessera::fence
