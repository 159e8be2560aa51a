// The driver itself: what tests set and ask, and NVML's figure for this process.
#include <unistd.h>

#include "memory/testing/fake_state.h"

namespace tessera::fence::testing {
namespace fake {

thread_local Context* t_current = nullptr;

Driver& D() {
  static auto* driver = new Driver();
  return *driver;
}

void RunOther(Call call, int when) {
  std::function<void()> other;
  {
    Lock lock(D().mutex);
    other.swap(D().meanwhile[static_cast<int>(call)][when]);
  }
  if (other) other();
}

CUresult Failing() {
  ++D().allocation_calls;
  const CUresult result = D().fail;
  D().fail = CUDA_SUCCESS;
  return result;
}

namespace {

nvmlReturn_t NoNvml() { return NVML_ERROR_LIBRARY_NOT_FOUND; }
nvmlReturn_t OpenNvml() { return NVML_SUCCESS; }
nvmlReturn_t CloseNvml() { return NVML_SUCCESS; }
nvmlReturn_t NvmlDevice(const char* uuid, nvmlDevice_t* device) {
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<std::uintptr_t>(uuid[5] - '0'));
  return NVML_SUCCESS;
}
nvmlReturn_t NvmlProcesses(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* infos) {
  Lock lock(D().mutex);
  ++D().asked;
  if (!D().tells) return NVML_ERROR_NOT_SUPPORTED;
  // A list of others, longer than a first guess.
  constexpr unsigned kOthers = 700;
  const bool fits = *count > kOthers;
  *count = kOthers + 1;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < kOthers; ++i) infos[i] = {3000000 + i, 77 * kMiB, 0, 0};
  infos[kOthers] = {static_cast<unsigned>(getpid()),
                    D().bytes[static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1], 0,
                    0};
  return NVML_SUCCESS;
}

}  // namespace

void PlaceFigures() { real::nvmlInit_v2 = NoNvml; }

}  // namespace fake

using fake::D;
using fake::Lock;

std::uint64_t DriverBytes(int card) {
  Lock lock(D().mutex);
  return D().bytes[card];
}
std::uint64_t TakeHighestBytes(int card) {
  Lock lock(D().mutex);
  return D().bytes[card].TakeHigh();
}
void FailNext(CUresult result) {
  Lock lock(D().mutex);
  D().fail = result;
}
int AllocationCalls() {
  Lock lock(D().mutex);
  return D().allocation_calls;
}
void SetNeighbourBytes(int card, std::uint64_t bytes) {
  Lock lock(D().mutex);
  D().neighbours[card] = bytes;
}
void NeighbourMovesInNextLoad(std::uint64_t bytes) {
  Lock lock(D().mutex);
  D().moves_in_load = bytes;
}
void SetResident(CUdeviceptr pointer, std::uint64_t bytes) {
  Lock lock(D().mutex);
  fake::Range& range = D().ranges.at(pointer);
  D().bytes[range.context->card] -= range.resident;
  D().bytes[range.context->card] += bytes;
  range.resident = bytes;
}
void ResidentInNextLoad(CUdeviceptr pointer, std::uint64_t bytes) {
  Lock lock(D().mutex);
  D().pages_in_load = {pointer, bytes};
}
void SayCapturing(bool capturing) {
  Lock lock(D().mutex);
  D().capturing = capturing;
}
void TellOwnBytes(bool tell) {
  Lock lock(D().mutex);
  D().tells = tell;
  real::nvmlInit_v2 = tell ? fake::OpenNvml : fake::NoNvml;
  real::nvmlShutdown = fake::CloseNvml;
  real::nvmlDeviceGetHandleByUUID = fake::NvmlDevice;
  real::nvmlDeviceGetComputeRunningProcesses_v3 = fake::NvmlProcesses;
}
int OwnBytesAsked() {
  Lock lock(D().mutex);
  return D().asked;
}
void SetCodeBytes(std::uint64_t bytes) {
  Lock lock(D().mutex);
  D().code_bytes = bytes;
}
int ModulesLoaded() {
  Lock lock(D().mutex);
  return D().modules;
}
void CloseExport(int descriptor) {
  Lock lock(D().mutex);
  fake::EndBinding({static_cast<std::uint64_t>(descriptor), 0});
}
int CallsOnTheDead() {
  Lock lock(D().mutex);
  return D().calls_on_the_dead;
}
void Before(Call call, std::function<void()> other) {
  Lock lock(D().mutex);
  D().meanwhile[static_cast<int>(call)][0] = std::move(other);
}
void After(Call call, std::function<void()> other) {
  Lock lock(D().mutex);
  D().meanwhile[static_cast<int>(call)][1] = std::move(other);
}
void ReuseHandles(bool reuse) {
  Lock lock(D().mutex);
  D().reuse_handles = reuse;
  D().last_ended = nullptr;
  D().last_pool = nullptr;
}

}  // namespace tessera::fence::testing
