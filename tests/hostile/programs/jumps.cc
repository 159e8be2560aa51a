// Leaves the fence by longjmp from a signal handler, hundreds of times, and calls into it from
// signal handlers; then looks whether it still answers, and in time. Only where the signal finds
// the fence's own code: leaving the driver in this way is the driver's matter, with or without a
// fence.
//
//   jumps leave|reenter SECONDS   does so for SECONDS; prints "done" when it hit the fence and ten
//   calls came back
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include <chrono>
#include <cstdint>
#include <cstring>

#include "calls.h"

using namespace tessera::hostile;

namespace {

sigjmp_buf g_back;
volatile sig_atomic_t g_may_jump = 0;
volatile sig_atomic_t g_hits = 0;
std::uintptr_t g_begin = 0, g_end = 0;  // of the fence's code

int FindFence(dl_phdr_info* info, std::size_t, void*) {
  if (std::strstr(info->dlpi_name, "libtessera") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    g_begin = info->dlpi_addr + part.p_vaddr;
    g_end = g_begin + part.p_memsz;
  }
  return 1;
}

bool InFence(const void* context) {
  const auto at = static_cast<std::uintptr_t>(
      static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  return at >= g_begin && at < g_end;
}

void Leave(int, siginfo_t*, void* context) {
  if (!g_may_jump || !InFence(context)) return;
  g_hits = g_hits + 1;
  siglongjmp(g_back, 1);
}

// A few times only: each may have to wait for locks that the interrupted call holds.
void Reenter(int, siginfo_t*, void* context) {
  if (!g_may_jump || g_hits >= 5 || !InFence(context)) return;
  g_hits = g_hits + 1;
  CUdeviceptr address = 0;
  if (cuMemAlloc(&address, kMiB) == CUDA_SUCCESS) cuMemFree(address);
}

void SetTimer(int microseconds) {
  itimerval every{{0, microseconds}, {0, microseconds}};
  setitimer(ITIMER_REAL, &every, nullptr);
}

// What the driver granted and the fence was left with is lost to the program, as it would be to
// any: so little is asked for.
void AllocateAndFree() {
  for (int i = 0; i < 20; ++i) {
    CUdeviceptr address = 0;
    if (cuMemAlloc(&address, 1) == CUDA_SUCCESS) cuMemFree(address);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(words[2]));
  const bool leave = std::strcmp(words[1], "leave") == 0;
  dl_iterate_phdr(FindFence, nullptr);
  if (g_begin == 0) return 5;
  OpenCard();
  struct sigaction action{};
  action.sa_sigaction = leave ? Leave : Reenter;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGALRM, &action, nullptr);
  SetTimer(100);
  while (std::chrono::steady_clock::now() < end) {
    if (sigsetjmp(g_back, 1) == 0) {
      g_may_jump = 1;
      AllocateAndFree();
    }
    g_may_jump = 0;
  }
  SetTimer(0);
  for (int i = 0; i < 10; ++i) {
    CUdeviceptr address = 0;
    if (cuMemAlloc(&address, kMiB) == CUDA_SUCCESS) cuMemFree(address);
  }
  if (g_hits == 0) return 6;
  Say("done");
  return 0;
}
