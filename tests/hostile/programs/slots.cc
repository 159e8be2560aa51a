// More processes than a slice has slots, each with a context and memory: light children of one
// process that never touched the driver.
//
//   slots CHILDREN   prints "granted N refused M" when all have tried; they stay until stdin ends
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <vector>

#include "calls.h"

using namespace tessera::hostile;

namespace {

struct Shared {
  std::atomic<int> granted, refused, failed;
};

[[noreturn]] void Attach(Shared& shared) {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  CUresult result = cuInit(0);
  if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxRetain(&context, 0);
  if (result == CUDA_SUCCESS) result = cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS) result = cuMemAlloc(&address, 2 * kMiB);
  std::atomic<int>& count = result == CUDA_SUCCESS               ? shared.granted
                            : result == CUDA_ERROR_OUT_OF_MEMORY ? shared.refused
                                                                 : shared.failed;
  count.fetch_add(1);
  for (;;) pause();
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  const int children = std::atoi(words[1]);
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> started;
  const auto done = [&] { return shared->granted + shared->refused + shared->failed; };
  for (int i = 0; i < children; ++i) {
    const pid_t child = fork();
    if (child < 0) break;
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Attach(*shared);
    }
    started.push_back(child);
    // A few at a time: what is tested is the number, not the crowd.
    while (done() + 8 < static_cast<int>(started.size())) usleep(200);
  }
  while (done() < static_cast<int>(started.size())) usleep(1000);
  std::printf("granted %d refused %d failed %d\n", shared->granted.load(), shared->refused.load(),
              shared->failed.load());
  std::fflush(stdout);
  WaitForEndOfInput();
  for (pid_t child : started) kill(child, SIGKILL);
  while (wait(nullptr) > 0) {
  }
  return 0;
}
