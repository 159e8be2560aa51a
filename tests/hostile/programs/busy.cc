// Allocates and frees without pause, so that wherever it is stopped or killed it is most likely
// inside a hook.
//
//   busy MIB SECONDS   prints "busy" when it has a context; ends after SECONDS or when stdin ends
#include <poll.h>

#include <chrono>

#include "calls.h"

using namespace tessera::hostile;

int main(int count, char** words) {
  if (count != 3) return 2;
  const std::size_t bytes = std::strtoull(words[1], nullptr, 10) * kMiB;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(words[2]));
  OpenCard();
  Say("busy");
  while (std::chrono::steady_clock::now() < end) {
    for (int round = 0; round < 1000; ++round) {
      CUdeviceptr address = 0;
      if (cuMemAlloc(&address, bytes) == CUDA_SUCCESS) Must(cuMemFree(address), "cuMemFree");
    }
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, 0) > 0) break;
  }
  return 0;
}
