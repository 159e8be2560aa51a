#include "os/holder.h"

#include <signal.h>
#include <sys/syscall.h>

#include "os/system_call.h"

namespace tessera::fence::os {

// Two functions called from the same place differ by their own frames; a handler lies deeper than
// the registers that the kernel saves for it (above 1.1 KiB on x86-64, 4 KiB on aarch64).
constexpr std::uint64_t kOfOneFrame = 1024;

bool WasLeft(std::uint64_t then, std::uint64_t here) {
  if (then == 0 || here + kOfOneFrame < then) return false;
  stack_t alternate{};
  return SystemCall(SYS_sigaltstack, 0L, &alternate) == 0 &&
         (alternate.ss_flags & SS_ONSTACK) == 0;
}

}  // namespace tessera::fence::os
