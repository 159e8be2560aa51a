// A slice that is meant but cannot be used, in a process whose driver was initialised past the
// fence: every wrapper refuses, none looks into the half that could be read.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "contract/policy_view.h"
#include "real.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

constexpr std::uint8_t kUuidByte = 7;

CUresult GetUuid(CUuuid* uuid, CUdevice) {
  std::memset(uuid->bytes, kUuidByte, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}
CUresult GetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(64);
  return CUDA_SUCCESS;
}
CUresult GetDevice(CUdevice* device, CUcontext) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult Retain(CUcontext*, CUdevice) { return CUDA_SUCCESS; }
CUresult GetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 0;
  return CUDA_SUCCESS;
}

// A policy of one card that is good in every field.
void WritePolicy(const std::string& path) {
  static contract::PolicyFile policy;
  contract::PolicyHeader& h = policy.header;
  h.magic = contract::kPolicyMagic;
  h.layout = contract::kPolicyLayout;
  h.file_bytes = sizeof policy;
  h.cards_offset = offsetof(contract::PolicyFile, cards);
  h.card_stride = sizeof(contract::PolicyCard);
  h.card_count = 1;
  h.gates_offset = offsetof(contract::PolicyFile, gates);
  h.gate_stride = sizeof(contract::PolicyGate);
  contract::PolicyCard& card = policy.cards[0];
  std::memset(card.uuid, kUuidByte, sizeof card.uuid);
  card.limit_bytes = card.ceiling_bytes = std::uint64_t{1} << 30;
  card.compute_percent = 100;
  std::ofstream(path).write(reinterpret_cast<const char*>(&policy), sizeof policy);
}

// In a child: the slice of a process is found once. Its exit status tells the first check that
// failed.
int Refused() {
  real::cuDeviceGetUuid_v2 = GetUuid;
  real::cuCtxGetCurrent = GetCurrent;
  real::cuCtxGetDevice_v2 = GetDevice;
  real::cuDevicePrimaryCtxRetain = Retain;
  real::cuDevicePrimaryCtxGetState = GetState;
  if (AttachSlice() != Mode::kRefused || SliceProblem()[0] == '\0') return 1;
  CUdeviceptr pointer = 0;
  if (cuMemAlloc_v2(&pointer, 100) != CUDA_ERROR_OUT_OF_MEMORY) return 2;
  if (cuMemAllocManaged(&pointer, 4 << 20, CU_MEM_ATTACH_GLOBAL) != CUDA_ERROR_OUT_OF_MEMORY)
    return 3;
  CUcontext context = nullptr;
  if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_ERROR_OUT_OF_MEMORY) return 4;
  if (cuCtxCreate_v4(&context, nullptr, 0, 0) != CUDA_ERROR_OUT_OF_MEMORY) return 5;
  CUmemAllocationProp prop{};
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemGenericAllocationHandle handle = 0;
  if (cuMemCreate(&handle, 4 << 20, &prop, 0) != CUDA_ERROR_OUT_OF_MEMORY) return 6;
  const CUDA_ARRAY_DESCRIPTOR descriptor{128, 128, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr;
  if (cuArrayCreate_v2(&array, &descriptor) != CUDA_ERROR_OUT_OF_MEMORY) return 7;
  return pointer == 0 && handle == 0 ? 0 : 8;
}

TEST(RefusedSlice, AGoodPolicyWithABadLedgerGrantsNothing) {
  char name[] = "/tmp/tessera-refused-test-XXXXXX";
  const std::string directory = mkdtemp(name);
  WritePolicy(directory + "/policy");
  std::ofstream(directory + "/ledger") << std::string(4096, 'x');
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    setenv("TESSERA_SLICE_DIR", directory.c_str(), 1);
    _exit(Refused());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  unlink((directory + "/policy").c_str());
  unlink((directory + "/ledger").c_str());
  rmdir(directory.c_str());
}

}  // namespace
}  // namespace tessera::fence
