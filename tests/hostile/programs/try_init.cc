// Calls cuInit and, whatever it answers, goes on to ask for memory: "RESULT GRANTED", where GRANTED
// counts the MiB that came.
//
//   try_init MIB   asks for MIB after cuInit
#include "calls.h"

using namespace tessera::hostile;

int main(int count, char** words) {
  if (count != 2) return 2;
  const std::size_t mib = std::strtoull(words[1], nullptr, 10);
  const CUresult started = cuInit(0);
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  const bool granted = cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
                       cuCtxSetCurrent(context) == CUDA_SUCCESS &&
                       cuMemAlloc(&address, mib * kMiB) == CUDA_SUCCESS;
  std::printf("%d %zu\n", static_cast<int>(started), granted ? mib : 0);
  return 0;
}
