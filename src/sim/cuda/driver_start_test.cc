// Starting: cuInit, visible cards, fork, cuGetProcAddress, tables, errors.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/cuda/testing/driver.h"

namespace tessera::sim {
namespace {

int Seen(const std::string& wanted) {
  // Prints to nobody: the exit status says whether the devices are as wanted, "2,0" for the last
  // bytes of their UUIDs.
  std::string seen;
  const CUresult result = CU(cuInit)(0);
  if (result != CUDA_SUCCESS) seen = "error " + std::to_string(result);
  int count = 0;
  if (result == CUDA_SUCCESS) CU(cuDeviceGetCount)(&count);
  for (int i = 0; i < count; ++i) {
    CUuuid uuid;
    if (CU(cuDeviceGetUuid_v2)(&uuid, i) != CUDA_SUCCESS) return 3;
    seen += (i ? "," : "") + std::to_string(uuid.bytes[15]);
  }
  if (seen == wanted) return 0;
  std::fprintf(stderr, "saw '%s', wanted '%s'\n", seen.c_str(), wanted.c_str());
  return 1;
}
const AddChild seen_child("seen", Seen);

TEST(VisibleDevices, FollowsTheGuide) {
  const struct {
    const char* list;
    const char* seen;
  } kCases[] = {
      {"0", "0"},
      {"2,0", "2,0"},
      {"1,7,0", "1"},
      {"0,0", "error 100"},
      {"", "error 100"},
      {"-1", "error 100"},
      {"0,-1,1", "0"},
      {" 1 , 2", "1,2"},
      {"x", "error 100"},
      {"MIG-7e55e2a0-0000-4000-8000-000000000000", "error 100"},
      {"GPU-7e55e2a0-0000-4000-8000-000000000002", "2"},
      {"GPU-7e55e2a0-0000-4000-8000-000000000001,0", "1,0"},
      {"GPU-7e55e2a0", "error 100"},  // three cards begin so
      {"0,1,2", "0,1,2"},
      {"00", "0"},
      {"99999999999", "error 100"},
  };
  for (const auto& c : kCases)
    EXPECT_EQ(RunAgain("seen", c.seen, {std::string("CUDA_VISIBLE_DEVICES=") + c.list}), 0)
        << c.list;
  EXPECT_EQ(RunAgain("seen", "0,1,2"), 0);
  EXPECT_EQ(RunAgain("seen", "0,1,2", {"CUDA_DEVICE_ORDER=PCI_BUS_ID"}), 0);
}

int WithoutInit(const std::string&) {
  int count = 0;
  CUdeviceptr pointer = 0;
  int version = 0;
  const char* name = nullptr;
  if (CU(cuDeviceGetCount)(&count) != CUDA_ERROR_NOT_INITIALIZED) return 1;
  if (CU(cuMemAlloc_v2)(&pointer, 1) != CUDA_ERROR_NOT_INITIALIZED) return 2;
  if (CU(cuDriverGetVersion)(&version) != CUDA_SUCCESS || version != 13000) return 3;
  if (CU(cuGetErrorName)(CUDA_ERROR_OUT_OF_MEMORY, &name) != CUDA_SUCCESS) return 4;
  if (CU(cuInit)(1) != CUDA_ERROR_INVALID_VALUE) return 5;
  return 0;
}
const AddChild without_init_child("without-init", WithoutInit);
TEST(Init, ComesFirst) { EXPECT_EQ(RunAgain("without-init"), 0); }

TEST(Init, NeedsANode) {
  EXPECT_EQ(RunAgain("seen", "error 100", {"TESSERA_SIM_NODE=/nowhere"}), 0);
}

int Forks(const std::string&) {
  if (CU(cuInit)(0) != CUDA_SUCCESS) return 1;
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    if (CU(cuDeviceGetCount)(&count) != CUDA_ERROR_NOT_INITIALIZED) _exit(2);
    if (CU(cuInit)(0) != CUDA_ERROR_NOT_INITIALIZED) _exit(3);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  int count = 0;
  return WEXITSTATUS(status) ? WEXITSTATUS(status) : CU(cuDeviceGetCount)(&count);
}
const AddChild forks_child("forks", Forks);
TEST(Init, DoesNotSurviveFork) { EXPECT_EQ(RunAgain("forks"), 0); }

int ForksBeforeInit(const std::string&) {
  const pid_t child = fork();
  if (child == 0) _exit(CU(cuInit)(0));
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status) ? WEXITSTATUS(status) : CU(cuInit)(0);
}
const AddChild forks_before_child("forks-before-init", ForksBeforeInit);
TEST(Init, WorksInAChildOfAProcessThatDidNotUseIt) { EXPECT_EQ(RunAgain("forks-before-init"), 0); }

class Started : public testing::Test {
  void SetUp() override { ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS); }
};

void* Look(const char* name, int version, cuuint64_t flags,
           CUdriverProcAddressQueryResult* status = nullptr) {
  void* function = nullptr;
  EXPECT_EQ(CU(cuGetProcAddress_v2)(name, &function, version, flags, status), CUDA_SUCCESS);
  return function;
}

// Rows from what the CUDA runtime asks for and must get.
TEST_F(Started, ProcAddressPicksTheAbiOfTheCaller) {
  const struct {
    const char* name;
    int version;
    cuuint64_t flags;
    const char* symbol;  // nullptr: nothing
  } kCases[] = {
      {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
      {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
      {"cuMemAlloc", 13000, 0, "cuMemAlloc_v2"},
      {"cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz"},
      {"cuMemAllocAsync", 11020, 1, "cuMemAllocAsync"},
      {"cuMemcpyHtoD", 3020, 2, "cuMemcpyHtoD_v2"},
      {"cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"},
      {"cuCtxGetDevice", 2000, 0, "cuCtxGetDevice"},
      {"cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"},
      {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"},
      {"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"},
      {"cuDevicePrimaryCtxRelease", 7000, 0, "cuDevicePrimaryCtxRelease"},
      {"cuDevicePrimaryCtxRelease", 11000, 0, "cuDevicePrimaryCtxRelease_v2"},
      {"cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz"},
      {"cuStreamGetCaptureInfo", 11030, 0, "cuStreamGetCaptureInfo_v2"},
      {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
      {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
      {"cuMemPrefetchAsync", 12020, 2, "cuMemPrefetchAsync_v2_ptsz"},
      {"cuProfilerStart", 4000, 0, "cuProfilerStart"},
      {"cuMemAlloc_v2", 13000, 0, nullptr},
      {"cuNoSuchThing", 13000, 0, nullptr},
      {"", 0, 0, nullptr},
      {"cuMemAllocAsync", 11000, 0, nullptr},
  };
  for (const auto& c : kCases)
    EXPECT_EQ(Look(c.name, c.version, c.flags), c.symbol ? DriverFunction(c.symbol) : nullptr)
        << c.name << "@" << c.version << " flags " << c.flags;
}

TEST_F(Started, ProcAddressSaysWhy) {
  CUdriverProcAddressQueryResult status;
  Look("cuMemAlloc", 13000, 0, &status);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  Look("cuNoSuchThing", 13000, 0, &status);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  Look("cuMemAllocAsync", 11000, 0, &status);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  void* function = nullptr;
  EXPECT_EQ(CU(cuGetProcAddress_v2)("cuMemAlloc", &function, 13010, 0, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuGetProcAddress_v2)("cuMemAlloc", &function, 13000, 4, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuGetProcAddress_v2)(nullptr, &function, 13000, 0, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuGetProcAddress)("cuNoSuchThing", &function, 13000, 0), CUDA_ERROR_NOT_FOUND);
}

TEST_F(Started, EveryResultHasNameAndText) {
  int names = 0;
  for (int i = 0; i < 1000; ++i) {
    const char *name = nullptr, *text = nullptr;
    const CUresult named = CU(cuGetErrorName)(static_cast<CUresult>(i), &name);
    EXPECT_EQ(named, CU(cuGetErrorString)(static_cast<CUresult>(i), &text)) << i;
    names += named == CUDA_SUCCESS;
    EXPECT_EQ(named == CUDA_SUCCESS, name != nullptr);
  }
  EXPECT_GT(names, 90);
}

// The attributes without which the CUDA runtime does not start, and those that PyTorch and others
// read besides.
TEST_F(Started, AttributesThatRuntimesNeed) {
  for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; ++attribute) {
    int value = -77;
    EXPECT_EQ(CU(cuDeviceGetAttribute)(&value, static_cast<CUdevice_attribute>(attribute), 0),
              CUDA_SUCCESS)
        << attribute;
    EXPECT_NE(value, -77);
  }
  const auto value = [](CUdevice_attribute attribute) {
    int out = 0;
    CU(cuDeviceGetAttribute)(&out, attribute, 1);
    return out;
  };
  EXPECT_EQ(value(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 80);
  EXPECT_EQ(value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 8);
  EXPECT_EQ(value(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), 0x11);
  EXPECT_EQ(value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR), 1536);
  EXPECT_EQ(value(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
  int out = 0;
  EXPECT_EQ(CU(cuDeviceGetAttribute)(&out, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 3),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(CU(cuDeviceGetAttribute)(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Started, DevicesByBusAndBack) {
  char id[32];
  CUdevice device = -1;
  ASSERT_EQ(CU(cuDeviceGetPCIBusId)(id, sizeof id, 1), CUDA_SUCCESS);
  EXPECT_STREQ(id, "0000:11:00.0");
  EXPECT_EQ(CU(cuDeviceGetByPCIBusId)(&device, id), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(CU(cuDeviceGetByPCIBusId)(&device, "12:00.0"), CUDA_SUCCESS);
  EXPECT_EQ(device, 2);
  EXPECT_EQ(CU(cuDeviceGetByPCIBusId)(&device, "0000:99:00.0"), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(CU(cuDeviceGetByPCIBusId)(&device, "nonsense"), CUDA_ERROR_INVALID_VALUE);
  int can = -1;
  EXPECT_EQ(CU(cuDeviceCanAccessPeer)(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(CU(cuDeviceCanAccessPeer)(&can, 0, 2), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
  char name[6];
  EXPECT_EQ(CU(cuDeviceGetName)(name, sizeof name, 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "NVIDI");
}

TEST_F(Started, TablesOfTheRuntime) {
  const CUuuid kIntegrity = {{'\xD4', '\x08', '\x20', '\x55', '\xBD', '\xE6', '\x70', '\x4B',
                              '\x8D', '\x34', '\xBA', '\x12', '\x3C', '\x66', '\xE1', '\xF2'}};
  const CUuuid kNone = {};
  const void* table = nullptr;
  ASSERT_EQ(CU(cuGetExportTable)(&table, &kIntegrity), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<const std::uint64_t*>(table)[0], 3 * sizeof(void*));
  EXPECT_EQ(CU(cuGetExportTable)(&table, &kNone), CUDA_ERROR_INVALID_VALUE);
}

// A fault that the scenario sets on a call comes out of it, as often as stated.
TEST_F(Started, FaultsComeOutOfCalls) {
  ASSERT_GE(AddFault("cuDeviceGetName", -1, CUDA_ERROR_UNKNOWN, 0, 1000, 1, 2), 0);
  char name[96];
  EXPECT_EQ(CU(cuDeviceGetName)(name, sizeof name, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuDeviceGetName)(name, sizeof name, 0), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(CU(cuDeviceGetName)(name, sizeof name, 0), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(CU(cuDeviceGetName)(name, sizeof name, 0), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::sim
