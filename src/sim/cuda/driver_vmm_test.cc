// Virtual memory management.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "sim/cuda/testing/sharing.h"

namespace tessera::sim {
namespace {

using Vmm = Sharing;

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

TEST_F(Vmm, ADescriptorAndAnImportHoldTheMemory) {
  CUmemGenericAllocationHandle handle = Create(kBlock, true), imported = 0;
  int descriptor = -1;
  ASSERT_EQ(CU(cuMemExportToShareableHandle)(&descriptor, handle,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  const int second = dup(descriptor);
  EXPECT_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), kBlock);
  close(descriptor);
  EXPECT_EQ(CU(cuMemRelease)(Create(kBlock)), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), kBlock);
  ASSERT_EQ(CU(cuMemImportFromShareableHandle)(
                &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(second)),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  close(second);
  EXPECT_EQ(CU(cuMemRelease)(Create(kBlock)), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), kBlock);
  EXPECT_EQ(CU(cuMemRelease)(imported), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
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

}  // namespace
}  // namespace tessera::sim
