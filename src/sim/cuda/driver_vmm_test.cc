// Virtual memory management, pools, and memory across processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "sim/cuda/testing/driver.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kMiB = 1 << 20, kBlock = 2 * kMiB;

class Sharing : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
    base_ = UsedOnCard(0);
  }
  void TearDown() override {
    CU(cuCtxSetCurrent)(nullptr);
    EXPECT_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  }
  std::uint64_t Charged() const { return UsedOnCard(0) - base_; }
  static CUmemAllocationProp OnDevice(int device, bool shareable = false) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    if (shareable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
  }
  static CUmemGenericAllocationHandle Create(std::size_t bytes, bool shareable = false) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = OnDevice(0, shareable);
    EXPECT_EQ(CU(cuMemCreate)(&handle, bytes, &properties, 0), CUDA_SUCCESS);
    return handle;
  }
  static CUdeviceptr Reserve(std::size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(CU(cuMemAddressReserve)(&pointer, bytes, 0, 0, 0), CUDA_SUCCESS);
    return pointer;
  }
  static CUresult Open(CUdeviceptr pointer, std::size_t bytes,
                       CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                       int device = 0) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    return CU(cuMemSetAccess)(pointer, bytes, &access, 1);
  }
  CUcontext context_{};
  std::uint64_t base_ = 0;
};
using Vmm = Sharing;
using Pools = Sharing;
using Ipc = Sharing;

TEST_F(Vmm, LivesUntilTheLastOfHandleAndMapping) {
  const CUdeviceptr place = Reserve(4 * kBlock);
  EXPECT_EQ(Charged(), 0u);
  CUmemGenericAllocationHandle handle = Create(2 * kBlock);
  EXPECT_EQ(Charged(), 2 * kBlock);
  ASSERT_EQ(CU(cuMemMap)(place, 2 * kBlock, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemMap)(place + 2 * kBlock, kBlock, kBlock, handle, 0), CUDA_SUCCESS);
  CUmemGenericAllocationHandle again = 0;
  EXPECT_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemRelease)(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 2 * kBlock);
  EXPECT_EQ(CU(cuMemRetainAllocationHandle)(&again, reinterpret_cast<void*>(place + 5)),
            CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemUnmap)(place, 2 * kBlock), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemUnmap)(place + 2 * kBlock, kBlock), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 2 * kBlock);
  EXPECT_EQ(CU(cuMemRelease)(again), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(CU(cuMemAddressFree)(place, 4 * kBlock), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAddressFree)(place, 4 * kBlock), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Vmm, MappingsShowTheSameBytes) {
  const CUdeviceptr place = Reserve(3 * kBlock);
  const auto handle = Create(2 * kBlock);
  ASSERT_EQ(CU(cuMemMap)(place, 2 * kBlock, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemMap)(place + 2 * kBlock, kBlock, kBlock, handle, 0), CUDA_SUCCESS);
  int in = 77, out = 0;
  EXPECT_EQ(CU(cuMemcpyHtoD_v2)(place, &in, 4), CUDA_ERROR_INVALID_VALUE);  // no access yet
  ASSERT_EQ(Open(place, 3 * kBlock), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyHtoD_v2)(place + kBlock, &in, 4), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyDtoH_v2)(&out, place + 2 * kBlock, 4), CUDA_SUCCESS);
  EXPECT_EQ(out, 77);
  ASSERT_EQ(Open(place + 2 * kBlock, kBlock, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyHtoD_v2)(place + 2 * kBlock, &in, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemsetD8_v2)(place, 1, 2 * kBlock + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemsetD8_v2)(place, 1, 2 * kBlock), CUDA_SUCCESS);
  unsigned long long flags = 0;
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0}, near{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  EXPECT_EQ(CU(cuMemGetAccess)(&flags, &here, place), CUDA_SUCCESS);
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_EQ(CU(cuMemGetAccess)(&flags, &near, place), CUDA_SUCCESS);
  EXPECT_EQ(flags, 0u);
  EXPECT_EQ(Open(place, 2 * kBlock, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 2),
            CUDA_ERROR_INVALID_DEVICE);  // no link
  EXPECT_EQ(CU(cuMemUnmap)(place, 3 * kBlock), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyHtoD_v2)(place, &in, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAddressFree)(place, 3 * kBlock), CUDA_SUCCESS);
}

TEST_F(Vmm, BadArgumentsChangeNothing) {
  const CUdeviceptr place = Reserve(2 * kBlock);
  const auto handle = Create(kBlock);
  CUmemGenericAllocationHandle other = 0;
  CUmemAllocationProp properties = OnDevice(0);
  EXPECT_EQ(CU(cuMemCreate)(&other, kBlock + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemCreate)(&other, 1ull << 45, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  properties.location.id = 9;
  EXPECT_EQ(CU(cuMemCreate)(&other, kBlock, &properties, 0), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(CU(cuMemMap)(place, 2 * kBlock, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemMap)(place + 2 * kBlock, kBlock, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemMap)(place, kBlock, 0, 12345, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(CU(cuMemMap)(place, kBlock, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemMap)(place, kBlock, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemAddressFree)(place, 2 * kBlock), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemUnmap)(place, 2 * kBlock), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Open(place, 2 * kBlock), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemFree_v2)(place), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), kBlock);
  EXPECT_EQ(CU(cuMemUnmap)(place, kBlock), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAddressFree)(place, 2 * kBlock), CUDA_SUCCESS);
}

int ImportsDescriptor(const std::string& descriptor) {
  CUcontext context{};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr place = 0;
  if (CU(cuInit)(0) || CU(cuCtxCreate_v2)(&context, 0, 0)) return 1;
  const std::uint64_t before = UsedOnCard(0);
  const auto number = reinterpret_cast<void*>(static_cast<std::intptr_t>(std::stoi(descriptor)));
  if (CU(cuMemImportFromShareableHandle)(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
    return 2;
  if (CU(cuMemAddressReserve)(&place, kBlock, 0, 0, 0) || CU(cuMemMap)(place, kBlock, 0, handle, 0))
    return 3;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (CU(cuMemSetAccess)(place, kBlock, &access, 1)) return 4;
  int value = 0;
  if (CU(cuMemcpyDtoH_v2)(&value, place, 4) || value != 1234) return 5;
  value = 4321;
  if (CU(cuMemcpyHtoD_v2)(place + 4, &value, 4)) return 6;
  return UsedOnCard(0) == before ? 0 : 7;  // the owner pays
}
const AddChild imports_child("imports-descriptor", ImportsDescriptor);

TEST_F(Vmm, CrossesProcessesByDescriptor) {
  const CUdeviceptr place = Reserve(kBlock);
  const auto handle = Create(kBlock, true);
  ASSERT_EQ(CU(cuMemMap)(place, kBlock, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(Open(place, kBlock), CUDA_SUCCESS);
  int value = 1234;
  ASSERT_EQ(CU(cuMemcpyHtoD_v2)(place, &value, 4), CUDA_SUCCESS);
  int descriptor = -1;
  ASSERT_EQ(CU(cuMemExportToShareableHandle)(&descriptor, handle,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  const int inherited = dup(descriptor);  // without close-on-exec
  EXPECT_EQ(RunAgain("imports-descriptor", std::to_string(inherited)), 0);
  EXPECT_EQ(CU(cuMemcpyDtoH_v2)(&value, place + 4, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 4321);
  close(inherited);
  close(descriptor);
  const auto plain = Create(kBlock);
  EXPECT_EQ(CU(cuMemExportToShareableHandle)(&descriptor, plain,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemRelease)(plain), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemUnmap)(place, kBlock), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAddressFree)(place, kBlock), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Pools, GrowAndAreTrimmed) {
  CUmemoryPool pool{}, current{};
  ASSERT_EQ(CU(cuDeviceGetDefaultMemPool)(&pool, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuDeviceGetMemPool)(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(pool, current);
  CUdeviceptr a = 0, b = 0;
  ASSERT_EQ(CU(cuMemAllocAsync)(&a, 1000, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 32 * kMiB);
  ASSERT_EQ(CU(cuMemAllocAsync)(&b, 40 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 96 * kMiB);
  cuuint64_t value = 0;
  EXPECT_EQ(CU(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 96 * kMiB);
  EXPECT_EQ(CU(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 1024 + 40 * kMiB);
  EXPECT_EQ(CU(cuMemFreeAsync)(b, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFreeAsync)(b, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 32 * kMiB);
  EXPECT_EQ(CU(cuMemFree_v2)(a), CUDA_SUCCESS);  // allowed for pool memory
  EXPECT_EQ(CU(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Pools, KeepMemoryBelowTheThresholdAtSynchronisation) {
  CUmemoryPool pool{};
  ASSERT_EQ(CU(cuDeviceGetDefaultMemPool)(&pool, 0), CUDA_SUCCESS);
  cuuint64_t threshold = 64 * kMiB;
  EXPECT_EQ(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
            CUDA_SUCCESS);
  CUdeviceptr pieces[3] = {};
  for (CUdeviceptr& piece : pieces)
    ASSERT_EQ(CU(cuMemAllocAsync)(&piece, 30 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 96 * kMiB);
  for (CUdeviceptr piece : pieces) EXPECT_EQ(CU(cuMemFreeAsync)(piece, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 64 * kMiB);
  threshold = 0;
  EXPECT_EQ(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
            CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Pools, OwnPoolsEndWithTheirLastAllocation) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.maxSize = 64 * kMiB;
  CUmemoryPool pool{};
  ASSERT_EQ(CU(cuMemPoolCreate)(&pool, &properties), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuDeviceSetMemPool)(0, pool), CUDA_SUCCESS);
  CUdeviceptr a = 0, b = 0;
  ASSERT_EQ(CU(cuMemAllocFromPoolAsync)(&a, 20 * kMiB, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAllocAsync)(&b, 80 * kMiB, nullptr),
            CUDA_ERROR_OUT_OF_MEMORY);  // the pool's own limit
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemPoolDestroy)(pool), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemAllocFromPoolAsync)(&b, 1, pool, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 32 * kMiB);
  EXPECT_EQ(CU(cuMemFreeAsync)(a, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  CUmemoryPool current{}, standard{};
  CU(cuDeviceGetMemPool)(&current, 0);
  CU(cuDeviceGetDefaultMemPool)(&standard, 0);
  EXPECT_EQ(current, standard);
}

TEST_F(Pools, UseWhatIsLeftOfTheCard) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
  CUdeviceptr most = 0, rest = 0, more = 0;
  ASSERT_EQ(CU(cuMemAlloc_v2)(&most, free - 6 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAllocAsync)(&rest, 5 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAllocAsync)(&more, 2 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CU(cuMemFreeAsync)(rest, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFree_v2)(most), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

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
