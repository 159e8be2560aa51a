#include <unistd.h>

#include <fstream>
#include <string>

#include "sim/nvml/memory_limits.h"
#include "sim/nvml/testing.h"

namespace tessera::sim::nvml {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST_F(NvmlTest, ExportsEveryNameOfTheHeader) {
  std::ifstream names(SIMNVML_EXPORTS);
  std::string name;
  int count = 0;
  while (names >> name) {
    EXPECT_NE(library_.Get<void()>(name.c_str()), nullptr) << name;
    ++count;
  }
  EXPECT_GE(count, 399);
}

TEST_F(NvmlTest, CountsInitialisations) {
  EXPECT_EQ(CALL(nvmlInitWithFlags, 0), NVML_SUCCESS);
  EXPECT_EQ(CALL(nvmlInitWithFlags, 64), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(CALL(nvmlShutdown), NVML_SUCCESS);
  unsigned int count = 0;
  EXPECT_EQ(CALL(nvmlDeviceGetCount_v2, &count), NVML_SUCCESS);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(CALL(nvmlShutdown), NVML_SUCCESS);
  EXPECT_EQ(CALL(nvmlDeviceGetCount_v2, &count), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(CALL(nvmlShutdown), NVML_ERROR_UNINITIALIZED);
  EXPECT_STREQ(CALL(nvmlErrorString, NVML_ERROR_UNINITIALIZED), "Uninitialized");
}

TEST_F(NvmlTest, TellsVersions) {
  char text[80];
  EXPECT_EQ(CALL(nvmlSystemGetDriverVersion, text, 80), NVML_SUCCESS);
  EXPECT_STREQ(text, "580.95.05");
  EXPECT_EQ(CALL(nvmlSystemGetDriverVersion, text, 4), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(CALL(nvmlSystemGetDriverVersion, nullptr, 80), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(CALL(nvmlSystemGetNVMLVersion, text, 80), NVML_SUCCESS);
  EXPECT_STREQ(text, "13.580.95.05");
  int version = 0;
  EXPECT_EQ(CALL(nvmlSystemGetCudaDriverVersion_v2, &version), NVML_SUCCESS);
  EXPECT_EQ(version, 13000);
  EXPECT_EQ(CALL(nvmlSystemGetProcessName, static_cast<unsigned int>(getpid()), text, 80),
            NVML_SUCCESS);
  EXPECT_NE(std::string(text).find("sim_nvml_test"), std::string::npos);
}

TEST_F(NvmlTest, FindsACardByEveryName) {
  char uuid[80], serial[30];
  nvmlPciInfo_t pci;
  nvmlDevice_t second = nullptr, found = nullptr;
  ASSERT_EQ(CALL(nvmlDeviceGetHandleByIndex_v2, 1, &second), NVML_SUCCESS);
  ASSERT_EQ(CALL(nvmlDeviceGetUUID, second, uuid, sizeof uuid), NVML_SUCCESS);
  EXPECT_STREQ(uuid, "GPU-7e55e2a0-0000-4000-8000-000000000001");
  EXPECT_EQ(CALL(nvmlDeviceGetHandleByUUID, uuid, &found), NVML_SUCCESS);
  EXPECT_EQ(found, second);
  ASSERT_EQ(CALL(nvmlDeviceGetSerial, second, serial, sizeof serial), NVML_SUCCESS);
  EXPECT_EQ(CALL(nvmlDeviceGetHandleBySerial, serial, &found), NVML_SUCCESS);
  EXPECT_EQ(found, second);
  ASSERT_EQ(CALL(nvmlDeviceGetPciInfo_v3, second, &pci), NVML_SUCCESS);
  EXPECT_STREQ(pci.busId, "00000000:11:00.0");
  EXPECT_STREQ(pci.busIdLegacy, "0000:11:00.0");
  EXPECT_EQ(CALL(nvmlDeviceGetHandleByPciBusId_v2, pci.busId, &found), NVML_SUCCESS);
  EXPECT_EQ(found, second);
  EXPECT_EQ(CALL(nvmlDeviceGetHandleByPciBusId_v2, "0000:11:00.0", &found), NVML_SUCCESS);
  EXPECT_EQ(CALL(nvmlDeviceGetHandleByPciBusId_v2, "0000:77:00.0", &found), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(CALL(nvmlDeviceGetHandleByUUID, "GPU-nothing", &found), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(CALL(nvmlDeviceGetHandleByIndex_v2, 2, &found), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlTest, RefusesBadHandles) {
  char text[96];
  nvmlDevice_t bad = reinterpret_cast<nvmlDevice_t>(0x1234);
  EXPECT_EQ(CALL(nvmlDeviceGetName, bad, text, 96), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(CALL(nvmlDeviceGetName, nullptr, text, 96), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(CALL(nvmlDeviceGetVgpuMetadata, card_, nullptr, nullptr), NVML_ERROR_NOT_SUPPORTED);
}

TEST_F(NvmlTest, MemoryOfBothVersionsAddsUp) {
  ASSERT_TRUE(ChargeCard(0, 1000 * kMiB));
  nvmlMemory_t first{};
  nvmlMemory_v2_t second{};
  ASSERT_EQ(CALL(nvmlDeviceGetMemoryInfo, card_, &first), NVML_SUCCESS);
  EXPECT_EQ(CALL(nvmlDeviceGetMemoryInfo_v2, card_, &second), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  second.version = nvmlMemory_v2;
  ASSERT_EQ(CALL(nvmlDeviceGetMemoryInfo_v2, card_, &second), NVML_SUCCESS);
  EXPECT_EQ(first.total, 23'028 * kMiB);
  EXPECT_EQ(second.total, first.total);
  EXPECT_EQ(second.used, 1000 * kMiB);
  EXPECT_EQ(first.used, second.used + second.reserved);
  EXPECT_EQ(second.free + second.used + second.reserved, second.total);
  EXPECT_EQ(first.free, second.free);
}

TEST_F(NvmlTest, ALostCardIsLostForEveryCall) {
  node_->cards[0].lost.store(1);
  char text[96];
  unsigned int value;
  nvmlDevice_t handle;
  EXPECT_EQ(CALL(nvmlDeviceGetName, card_, text, 96), NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(CALL(nvmlDeviceGetPowerUsage, card_, &value), NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(CALL(nvmlDeviceGetHandleByIndex_v2, 0, &handle), NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(CALL(nvmlDeviceGetHandleByIndex_v2, 1, &handle), NVML_SUCCESS);
  node_->cards[0].lost.store(0);
  EXPECT_EQ(CALL(nvmlDeviceGetName, card_, text, 96), NVML_SUCCESS);
  EXPECT_STREQ(text, "NVIDIA A10G");
}

TEST_F(NvmlTest, InjectedFaultsAnswerByNameAndCard) {
  ASSERT_GE(AddFault("nvmlDeviceGetPowerUsage", 0, NVML_ERROR_UNKNOWN, 0, 1000, 0, 1), 0);
  unsigned int value;
  EXPECT_EQ(CALL(nvmlDeviceGetPowerUsage, card_, &value), NVML_ERROR_UNKNOWN);
  EXPECT_EQ(CALL(nvmlDeviceGetPowerUsage, card_, &value), NVML_SUCCESS);
}

TEST_F(NvmlTest, SensorsFollowInjection) {
  unsigned int idle = 0, value = 0;
  unsigned long long reasons = 0;
  EXPECT_EQ(CALL(nvmlDeviceGetTemperature, card_, NVML_TEMPERATURE_GPU, &idle), NVML_SUCCESS);
  EXPECT_LT(idle, 50u);
  EXPECT_EQ(CALL(nvmlDeviceGetCurrentClocksEventReasons, card_, &reasons), NVML_SUCCESS);
  EXPECT_EQ(reasons, static_cast<unsigned long long>(nvmlClocksEventReasonGpuIdle));
  node_->cards[0].temperature_c.store(97);
  nvmlTemperature_t temperature{nvmlTemperature_v1, NVML_TEMPERATURE_GPU, 0};
  EXPECT_EQ(CALL(nvmlDeviceGetTemperatureV, card_, &temperature), NVML_SUCCESS);
  EXPECT_EQ(temperature.temperature, 97);
  EXPECT_EQ(CALL(nvmlDeviceGetCurrentClocksThrottleReasons, card_, &reasons), NVML_SUCCESS);
  EXPECT_NE(reasons & nvmlClocksThrottleReasonHwThermalSlowdown, 0u);
  EXPECT_EQ(CALL(nvmlDeviceGetFanSpeed, card_, &value), NVML_ERROR_NOT_SUPPORTED)
      << "an A10G has no fan";
  EXPECT_EQ(CALL(nvmlDeviceGetEnforcedPowerLimit, card_, &value), NVML_SUCCESS);
  EXPECT_EQ(value, 300'000u);
}

TEST_F(NvmlTest, FieldValuesAnswerOneByOne) {
  node_->cards[0].ecc_uncorrected.store(3);
  node_->cards[0].recovery_action.store(1);
  nvmlFieldValue_t fields[3]{};
  fields[0].fieldId = NVML_FI_DEV_ECC_DBE_VOL_TOTAL;
  fields[1].fieldId = NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
  fields[2].fieldId = 99'999;
  ASSERT_EQ(CALL(nvmlDeviceGetFieldValues, card_, 3, fields), NVML_SUCCESS);
  EXPECT_EQ(fields[0].value.ullVal, 3u);
  EXPECT_EQ(fields[1].value.ullVal, 1u);
  EXPECT_EQ(fields[2].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
}

TEST_F(NvmlTest, TopologyComesFromTheNode) {
  nvmlDevice_t second = nullptr;
  ASSERT_EQ(CALL(nvmlDeviceGetHandleByIndex_v2, 1, &second), NVML_SUCCESS);
  nvmlGpuTopologyLevel_t level;
  EXPECT_EQ(CALL(nvmlDeviceGetTopologyCommonAncestor, card_, second, &level), NVML_SUCCESS);
  EXPECT_EQ(level, NVML_TOPOLOGY_SINGLE);
  nvmlGpuP2PStatus_t status;
  EXPECT_EQ(CALL(nvmlDeviceGetP2PStatus, card_, second, NVML_P2P_CAPS_INDEX_READ, &status),
            NVML_SUCCESS);
  EXPECT_EQ(status, NVML_P2P_STATUS_OK);
  EXPECT_EQ(CALL(nvmlDeviceGetP2PStatus, card_, second, NVML_P2P_CAPS_INDEX_NVLINK, &status),
            NVML_SUCCESS);
  EXPECT_EQ(status, NVML_P2P_STATUS_NOT_SUPPORTED);
  nvmlEnableState_t active;
  EXPECT_EQ(CALL(nvmlDeviceGetNvLinkState, card_, 0, &active), NVML_ERROR_NOT_SUPPORTED);
}

using SetLimits = nvmlReturn_t(nvmlDevice_t, SetMemoryLimits_v1*);
using GetLimits = nvmlReturn_t(nvmlDevice_t, GetMemoryLimits_v1*);

TEST_F(NvmlTest, MemoryLimitsNeedANewDriver) {
  SetMemoryLimits_v1 limits{"/a", 0, 1 << 30};
  EXPECT_EQ(library_.Get<SetLimits>("nvmlDeviceSetMemoryLimits_v1")(card_, &limits),
            NVML_ERROR_NOT_SUPPORTED);
}

TEST_F(NvmlTest, MemoryLimitsHoldInTheDriver) {
  node_->memory_limits_supported = 1;
  ASSERT_GE(OwnProcess(), 0);
  const std::string cgroup = node_->processes[OwnProcess()].cgroup;
  SetMemoryLimits_v1 limits{cgroup.c_str(), 0, 100 * kMiB};
  const auto set = library_.Get<SetLimits>("nvmlDeviceSetMemoryLimits_v1");
  if (geteuid() != 0) {
    EXPECT_EQ(set(card_, &limits), NVML_ERROR_NO_PERMISSION);
    return;
  }
  ASSERT_EQ(set(card_, &limits), NVML_SUCCESS);
  EXPECT_TRUE(ChargeCard(0, 100 * kMiB));
  EXPECT_FALSE(ChargeCard(0, 2 * kMiB));
  GetMemoryLimits_v1 view{cgroup.c_str(), 0, 0, 0};
  ASSERT_EQ(library_.Get<GetLimits>("nvmlDeviceGetMemoryLimits_v1")(card_, &view), NVML_SUCCESS);
  EXPECT_EQ(view.hard_limit, 100 * kMiB);
  EXPECT_EQ(view.current_used, 100 * kMiB);
  const std::string directory = "/sys/fs/cgroup" + cgroup;
  GetMemoryLimits_v1 mounted{directory.c_str(), 0, 0, 0};
  ASSERT_EQ(library_.Get<GetLimits>("nvmlDeviceGetMemoryLimits_v1")(card_, &mounted), NVML_SUCCESS);
  EXPECT_EQ(mounted.hard_limit, 100 * kMiB)
      << "the directory of a cgroup and its path are the same cgroup";
  limits.name_space = "relative";
  EXPECT_EQ(set(card_, &limits), NVML_ERROR_INVALID_ARGUMENT);
}

NodeDescription MigNode() {
  NodeDescription description = DefaultNode(1);
  CardSpec& card = description.specs[0];
  card.mig_capable = card.mig_enabled = 1;
  card.mig_count = 2;
  for (int i = 0; i < 2; ++i) {
    MigSpec& mig = card.mig[i];
    snprintf(mig.profile, sizeof mig.profile, "1g.10gb");
    mig.uuid[15] = static_cast<std::uint8_t>(i + 1);
    mig.gpu_instance = static_cast<std::uint32_t>(7 + i);
    mig.gpu_slices = mig.compute_slices = 1;
    mig.sm_count = 14;
    mig.memory_bytes = 9'728 * kMiB;
  }
  return description;
}

class MigTest : public NvmlTest {
 protected:
  MigTest() : NvmlTest(MigNode()) {}
};

TEST_F(MigTest, DevicesAreListed) {
  unsigned int current = 0, pending = 0, value = 0;
  EXPECT_EQ(CALL(nvmlDeviceGetMigMode, card_, &current, &pending), NVML_SUCCESS);
  EXPECT_EQ(current, 1u);
  EXPECT_EQ(CALL(nvmlDeviceGetMaxMigDeviceCount, card_, &value), NVML_SUCCESS);
  EXPECT_EQ(value, 7u);
  nvmlDevice_t mig = nullptr, parent = nullptr, found = nullptr;
  ASSERT_EQ(CALL(nvmlDeviceGetMigDeviceHandleByIndex, card_, 1, &mig), NVML_SUCCESS);
  EXPECT_EQ(CALL(nvmlDeviceGetMigDeviceHandleByIndex, card_, 2, &found), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig, &parent), NVML_SUCCESS);
  EXPECT_EQ(parent, card_);
  EXPECT_EQ(CALL(nvmlDeviceGetGpuInstanceId, mig, &value), NVML_SUCCESS);
  EXPECT_EQ(value, 8u);
  char text[136];
  EXPECT_EQ(CALL(nvmlDeviceGetUUID, mig, text, 96), NVML_SUCCESS);
  EXPECT_STREQ(text, "MIG-00000000-0000-0000-0000-000000000002");
  EXPECT_EQ(CALL(nvmlDeviceGetHandleByUUID, text, &found), NVML_SUCCESS);
  EXPECT_EQ(found, mig);
  EXPECT_EQ(CALL(nvmlDeviceGetName, mig, text, 96), NVML_SUCCESS);
  EXPECT_STREQ(text, "NVIDIA A10G MIG 1g.10gb");
  nvmlUtilization_t utilization;
  EXPECT_EQ(CALL(nvmlDeviceGetUtilizationRates, card_, &utilization), NVML_ERROR_NOT_SUPPORTED);
}

TEST_F(MigTest, MemoryAndProcessesAreOfTheDevice) {
  UseMigDevice(0, 1);
  ASSERT_TRUE(ChargeCard(0, 100 * kMiB));
  nvmlDevice_t migs[2];
  for (unsigned i = 0; i < 2; ++i) {
    ASSERT_EQ(CALL(nvmlDeviceGetMigDeviceHandleByIndex, card_, i, &migs[i]), NVML_SUCCESS);
    nvmlMemory_t memory;
    ASSERT_EQ(CALL(nvmlDeviceGetMemoryInfo, migs[i], &memory), NVML_SUCCESS);
    EXPECT_EQ(memory.total, 9'728 * kMiB);
    EXPECT_EQ(memory.used, i * 100 * kMiB);
    EXPECT_EQ(memory.free, (9'728 - i * 100) * kMiB);
    unsigned count = 1;
    nvmlProcessInfo_t info;
    ASSERT_EQ(CALL(nvmlDeviceGetComputeRunningProcesses_v3, migs[i], &count, &info), NVML_SUCCESS);
    EXPECT_EQ(count, i);
  }
  unsigned count = 1;
  nvmlProcessInfo_t info;
  ASSERT_EQ(CALL(nvmlDeviceGetComputeRunningProcesses_v3, card_, &count, &info), NVML_SUCCESS);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(info.gpuInstanceId, 8u);
  EXPECT_EQ(info.usedGpuMemory, 100 * kMiB);
  nvmlMemory_v2_t whole{};
  whole.version = nvmlMemory_v2;
  ASSERT_EQ(CALL(nvmlDeviceGetMemoryInfo_v2, card_, &whole), NVML_SUCCESS);
  EXPECT_EQ(whole.used, 100 * kMiB);
}

TEST(Nvml, WithoutANodeThereIsNoDriver) {
  setenv(kEnvNodePath, "/nonexistent", 1);
  Library library_;
  EXPECT_EQ(CALL(nvmlInit_v2), NVML_ERROR_DRIVER_NOT_LOADED);
}

}  // namespace
}  // namespace tessera::sim::nvml
