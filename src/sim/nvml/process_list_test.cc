#include <unistd.h>

#include "sim/nvml/testing.h"

namespace tessera::sim::nvml {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// A child that holds memory until it is killed; the test goes on once it has it.
pid_t Holder(std::uint64_t bytes) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const pid_t child = testing::Start([&] {
    const char said = ChargeCard(0, bytes) ? 'y' : 'n';
    if (write(ready[1], &said, 1) != 1) return false;
    pause();
    return true;
  });
  char said = 0;
  EXPECT_EQ(read(ready[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  close(ready[0]);
  close(ready[1]);
  return child;
}

TEST_F(NvmlTest, NobodyIsAnEmptyList) {
  unsigned int count = 0;
  EXPECT_EQ(CALL(nvmlDeviceGetComputeRunningProcesses_v3, card_, &count, nullptr), NVML_SUCCESS);
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(CALL(nvmlDeviceGetComputeRunningProcesses_v3, card_, nullptr, nullptr),
            NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlTest, ProcessesAppearInEveryVersionAndGo) {
  const pid_t child = Holder(700 * kMiB);
  unsigned int count = 0;
  ASSERT_EQ(CALL(nvmlDeviceGetComputeRunningProcesses_v3, card_, &count, nullptr),
            NVML_ERROR_INSUFFICIENT_SIZE);
  ASSERT_EQ(count, 1u);
  nvmlProcessInfo_t third[4]{};
  count = 4;
  ASSERT_EQ(CALL(nvmlDeviceGetComputeRunningProcesses_v3, card_, &count, third), NVML_SUCCESS);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(third[0].pid, static_cast<unsigned int>(child));
  EXPECT_EQ(third[0].usedGpuMemory, 700 * kMiB);
  EXPECT_EQ(third[0].gpuInstanceId, 0xffffffffu);
  nvmlProcessInfo_v1_t first[2]{};
  count = 2;
  ASSERT_EQ(CALL(nvmlDeviceGetComputeRunningProcesses, card_, &count, first), NVML_SUCCESS);
  EXPECT_EQ(first[0].pid, static_cast<unsigned int>(child));
  EXPECT_EQ(first[1].pid, 0u) << "records of 16 bytes";
  nvmlProcessDetail_v1_t details[2]{};
  nvmlProcessDetailList_t list{nvmlProcessDetailList_v1, 0, 2, details};
  ASSERT_EQ(CALL(nvmlDeviceGetRunningProcessDetailList, card_, &list), NVML_SUCCESS);
  EXPECT_EQ(list.numProcArrayEntries, 1u);
  EXPECT_EQ(details[0].usedGpuMemory, 700 * kMiB);
  count = 2;
  EXPECT_EQ(CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, card_, &count, third), NVML_SUCCESS);
  EXPECT_EQ(count, 0u);
  unsigned int pids[4] = {};
  count = 4;
  EXPECT_EQ(CALL(nvmlDeviceGetAccountingPids, card_, &count, pids), NVML_SUCCESS);
  EXPECT_EQ(pids[0], static_cast<unsigned int>(child));

  testing::Kill(child);
  count = 4;
  EXPECT_EQ(CALL(nvmlDeviceGetComputeRunningProcesses_v3, card_, &count, third), NVML_SUCCESS);
  EXPECT_EQ(count, 0u);
  nvmlMemory_v2_t memory{};
  memory.version = nvmlMemory_v2;
  EXPECT_EQ(CALL(nvmlDeviceGetMemoryInfo_v2, card_, &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.used, 0u);
}

}  // namespace
}  // namespace tessera::sim::nvml
