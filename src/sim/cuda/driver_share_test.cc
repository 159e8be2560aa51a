// Memory across processes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "sim/cuda/testing/sharing.h"

namespace tessera::sim {
namespace {

using Ipc = Sharing;

// 128 hexadecimal digits of 64 bytes.
std::string Hex(const void* data) {
  std::string text;
  for (int i = 0; i < 64; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<const unsigned char*>(data)[i]);
    text += two;
  }
  return text;
}
void FromHex(const std::string& text, void* data) {
  for (int i = 0; i < 64; ++i)
    static_cast<unsigned char*>(data)[i] = static_cast<unsigned char>(
        std::stoi(text.substr(static_cast<std::size_t>(i) * 2, 2), nullptr, 16));
}

int OpensIpc(const std::string& text) {
  CUcontext context{};
  CUipcMemHandle handle;
  FromHex(text, &handle);
  CUdeviceptr pointer = 0, again = 0;
  if (CU(cuInit)(0) || CU(cuCtxCreate_v2)(&context, 0, 0)) return 1;
  const std::uint64_t before = UsedOnCard(0);
  if (CU(cuIpcOpenMemHandle_v2)(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) return 2;
  if (CU(cuIpcOpenMemHandle_v2)(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ||
      again != pointer)
    return 3;
  int value = 0;
  if (CU(cuMemcpyDtoH_v2)(&value, pointer, 4) || value != 99) return 4;
  value = 100;
  if (CU(cuMemcpyHtoD_v2)(pointer + 4, &value, 4)) return 5;
  if (UsedOnCard(0) != before) return 6;
  if (CU(cuMemFree_v2)(pointer) != CUDA_ERROR_INVALID_VALUE) return 7;
  if (CU(cuIpcCloseMemHandle)(pointer) || CU(cuIpcCloseMemHandle)(pointer)) return 8;
  if (CU(cuIpcCloseMemHandle)(pointer) != CUDA_ERROR_INVALID_VALUE) return 9;
  return CU(cuMemcpyDtoH_v2)(&value, pointer, 4) == CUDA_ERROR_INVALID_VALUE ? 0 : 10;
}
const AddChild opens_child("opens-ipc", OpensIpc);

TEST_F(Ipc, MemoryIsOpenedElsewhere) {
  for (std::size_t size : {std::size_t{100'000}, std::size_t{5 * kMiB}}) {
    CUdeviceptr before = 0, pointer = 0;
    ASSERT_EQ(CU(cuMemAlloc_v2)(&before, 1000),
              CUDA_SUCCESS);  // the small one is not its block's first
    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, size), CUDA_SUCCESS);
    int value = 99;
    ASSERT_EQ(CU(cuMemcpyHtoD_v2)(pointer, &value, 4), CUDA_SUCCESS);
    CUipcMemHandle handle;
    ASSERT_EQ(CU(cuIpcGetMemHandle)(&handle, pointer), CUDA_SUCCESS);
    EXPECT_EQ(RunAgain("opens-ipc", Hex(&handle)), 0) << size;
    EXPECT_EQ(CU(cuMemcpyDtoH_v2)(&value, pointer + 4, 4), CUDA_SUCCESS);
    EXPECT_EQ(value, 100);
    CUdeviceptr here = 0;
    EXPECT_EQ(CU(cuIpcOpenMemHandle_v2)(&here, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
              CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemFree_v2)(before), CUDA_SUCCESS);
    EXPECT_EQ(Charged(), 0u);
    // The addresses are ordinary memory again, and zero.
    ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, size), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemcpyDtoH_v2)(&value, pointer, 4), CUDA_SUCCESS);
    EXPECT_EQ(value, 0);
    EXPECT_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
  }
  CUipcMemHandle garbage = {};
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CU(cuIpcOpenMemHandle_v2)(&pointer, garbage, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_VALUE);
}

int ImportsPoolPointer(const std::string& text) {
  CUcontext context{};
  CUmemPoolPtrExportData data;
  FromHex(text.substr(0, 128), &data);
  CUmemoryPool pool{};
  CUdeviceptr pointer = 0;
  if (CU(cuInit)(0) || CU(cuCtxCreate_v2)(&context, 0, 0)) return 1;
  const auto number =
      reinterpret_cast<void*>(static_cast<std::intptr_t>(std::stoi(text.substr(128))));
  if (CU(cuMemPoolImportFromShareableHandle)(&pool, number,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
    return 2;
  if (CU(cuMemPoolImportPointer)(&pointer, pool, &data)) return 3;
  int value = 0;
  if (CU(cuMemcpyDtoH_v2)(&value, pointer, 4) || value != 5) return 4;
  if (CU(cuMemAllocFromPoolAsync)(&pointer, 1, pool, nullptr) != CUDA_ERROR_INVALID_VALUE) return 5;
  if (CU(cuMemFreeAsync)(pointer, nullptr) || CU(cuCtxSynchronize)()) return 6;
  return CU(cuMemcpyDtoH_v2)(&value, pointer, 4) == CUDA_ERROR_INVALID_VALUE ? 0 : 7;
}
const AddChild pool_child("imports-pool-pointer", ImportsPoolPointer);

TEST_F(Ipc, PoolsAreShared) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool{};
  ASSERT_EQ(CU(cuMemPoolCreate)(&pool, &properties), CUDA_SUCCESS);
  CUdeviceptr first = 0, pointer = 0;
  ASSERT_EQ(CU(cuMemAllocFromPoolAsync)(&first, 1000, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemAllocFromPoolAsync)(&pointer, 1000, pool, nullptr), CUDA_SUCCESS);
  int value = 5, descriptor = -1;
  ASSERT_EQ(CU(cuMemcpyHtoD_v2)(pointer, &value, 4), CUDA_SUCCESS);
  CUmemPoolPtrExportData data;
  ASSERT_EQ(CU(cuMemPoolExportPointer)(&data, pointer), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemPoolExportToShareableHandle)(&descriptor, pool,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  const int inherited = dup(descriptor);
  EXPECT_EQ(RunAgain("imports-pool-pointer", Hex(&data) + std::to_string(inherited)), 0);
  close(inherited);
  close(descriptor);
  EXPECT_EQ(CU(cuMemFreeAsync)(pointer, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFreeAsync)(first, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Ipc, ExternalMemoryIsChargedOnImport) {
  const int file = memfd_create("outside", 0);
  ASSERT_EQ(ftruncate(file, 4 * kMiB), 0);
  int value = 31;
  ASSERT_EQ(pwrite(file, &value, 4, kMiB), 4);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC description{};
  description.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  description.handle.fd = file;
  description.size = 3 * kMiB;
  CUexternalMemory memory{};
  ASSERT_EQ(CU(cuImportExternalMemory)(&memory, &description), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB);
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC part{};
  part.offset = kMiB;
  part.size = kMiB;
  CUdeviceptr pointer = 0;
  ASSERT_EQ(CU(cuExternalMemoryGetMappedBuffer)(&pointer, memory, &part), CUDA_SUCCESS);
  value = 0;
  EXPECT_EQ(CU(cuMemcpyDtoH_v2)(&value, pointer, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 31);
  EXPECT_EQ(CU(cuMemcpyDtoH_v2)(&value, pointer + kMiB, 4), CUDA_ERROR_INVALID_VALUE);
  part.size = 9 * kMiB;
  EXPECT_EQ(CU(cuExternalMemoryGetMappedBuffer)(&pointer, memory, &part), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuDestroyExternalMemory)(memory), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuDestroyExternalMemory)(memory), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(fcntl(file, F_GETFD), -1);  // the driver owned it
}

// A user that dies takes nothing with it.
int DiesHolding(const std::string&) {
  CUcontext context{};
  CUdeviceptr pointer = 0;
  if (CU(cuInit)(0) || CU(cuCtxCreate_v2)(&context, 0, 0) ||
      CU(cuMemAlloc_v2)(&pointer, 1ull << 30))
    return 1;
  raise(SIGKILL);
  return 2;
}
const AddChild dies_child("dies-holding", DiesHolding);
TEST_F(Ipc, TheDeadHoldNothing) {
  EXPECT_EQ(RunAgain("dies-holding"), 128 + SIGKILL);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
  CUdeviceptr all = 0;
  EXPECT_EQ(CU(cuMemAlloc_v2)(&all, total - TestNode().specs[0].reserved_bytes - base_),
            CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFree_v2)(all), CUDA_SUCCESS);
}

TEST_F(Ipc, CheckpointTakesMemoryOffTheCard) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * kMiB), CUDA_SUCCESS);
  int value = 8;
  ASSERT_EQ(CU(cuMemcpyHtoD_v2)(pointer, &value, 4), CUDA_SUCCESS);
  CUprocessState state;
  EXPECT_EQ(CU(cuCheckpointProcessCheckpoint)(getpid(), nullptr), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_EQ(CU(cuCheckpointProcessLock)(getpid(), nullptr), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuCheckpointProcessCheckpoint)(getpid(), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCheckpointProcessGetState)(getpid(), &state), CUDA_SUCCESS);
  EXPECT_EQ(state, CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_EQ(HeldHere(0), 0u);
  ASSERT_EQ(CU(cuCheckpointProcessRestore)(getpid(), nullptr), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuCheckpointProcessUnlock)(getpid(), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 64 * kMiB);
  value = 0;
  EXPECT_EQ(CU(cuMemcpyDtoH_v2)(&value, pointer, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 8);
  EXPECT_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::sim
