// Utilisation as NVML reports it. Sleeps give the model time; no test asks how fast anything was.
#include <unistd.h>

#include <vector>

#include "sim/nvml/testing.h"

namespace tessera::sim::nvml {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

TEST_F(NvmlTest, IdleCardIsIdle) {
  nvmlUtilization_t load{9, 9};
  EXPECT_EQ(CALL(nvmlDeviceGetUtilizationRates, card_, &load), NVML_SUCCESS);
  EXPECT_EQ(load.gpu, 0u);
  unsigned int count = 0;
  EXPECT_EQ(CALL(nvmlDeviceGetProcessUtilization, card_, nullptr, &count, 0), NVML_ERROR_NOT_FOUND);
}

TEST_F(NvmlTest, BusyCardIsBusyAndNamesItsUser) {
  SubmitWork(0, 0, 0, 2'000 * kMs);
  ASSERT_TRUE(ChargeCard(0, 1));
  usleep(400'000);
  nvmlUtilization_t load{};
  EXPECT_EQ(CALL(nvmlDeviceGetUtilizationRates, card_, &load), NVML_SUCCESS);
  EXPECT_EQ(load.gpu, 100u);
  EXPECT_EQ(load.memory, 50u);
  unsigned int clock = 0, count = 0;
  EXPECT_EQ(CALL(nvmlDeviceGetClockInfo, card_, NVML_CLOCK_SM, &clock), NVML_SUCCESS);
  EXPECT_EQ(clock, 1710u);
  ASSERT_EQ(CALL(nvmlDeviceGetProcessUtilization, card_, nullptr, &count, 0),
            NVML_ERROR_INSUFFICIENT_SIZE);
  ASSERT_EQ(count, 1u);
  nvmlProcessUtilizationSample_t sample{};
  ASSERT_EQ(CALL(nvmlDeviceGetProcessUtilization, card_, &sample, &count, 0), NVML_SUCCESS);
  EXPECT_EQ(sample.pid, static_cast<unsigned int>(getpid()));
  EXPECT_GT(sample.smUtil, 0u);
  EXPECT_EQ(
      CALL(nvmlDeviceGetProcessUtilization, card_, &sample, &count, sample.timeStamp + 10'000'000),
      NVML_ERROR_NOT_FOUND);
}

TEST_F(NvmlTest, SamplesAreOnePerWindow) {
  SubmitWork(0, 0, 0, 400 * kMs);
  usleep(600'000);
  nvmlValueType_t type;
  unsigned int count = 0;
  ASSERT_EQ(
      CALL(nvmlDeviceGetSamples, card_, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, nullptr),
      NVML_SUCCESS);
  std::vector<nvmlSample_t> samples(count);
  ASSERT_EQ(CALL(nvmlDeviceGetSamples, card_, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count,
                 samples.data()),
            NVML_SUCCESS);
  unsigned int sum = 0;
  for (const nvmlSample_t& sample : samples) sum += sample.sampleValue.uiVal;
  EXPECT_NEAR(sum, 240, 3) << "400 ms are 2.4 windows";
}

TEST_F(NvmlTest, CopiesShowAsThroughput) {
  SubmitWork(0, 1, 0, 2'000 * kMs);
  usleep(400'000);
  unsigned int in = 0, out = 0;
  EXPECT_EQ(CALL(nvmlDeviceGetPcieThroughput, card_, NVML_PCIE_UTIL_RX_BYTES, &in), NVML_SUCCESS);
  EXPECT_EQ(CALL(nvmlDeviceGetPcieThroughput, card_, NVML_PCIE_UTIL_TX_BYTES, &out), NVML_SUCCESS);
  EXPECT_NEAR(in, 25e9 / 1024, 25e9 / 1024 / 100);
  EXPECT_EQ(out, 0u);
}

}  // namespace
}  // namespace tessera::sim::nvml
