// The reader against libraries built for the test: one that answers, one whose second card hangs,
// one that lacks functions.
#include "driver/nvml.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tessera::driver {
namespace {

OpenOptions TestLibrary() { return {TESSERA_TEST_NVML, std::chrono::milliseconds(10000)}; }

TEST(NvmlReader, ReadsCardsAndUsage) {
  unsetenv("TEST_NVML_HANG");
  auto nvml = OpenNvml(TestLibrary());
  ASSERT_TRUE(nvml) << nvml.error().message;
  const auto driver = (*nvml)->Driver();
  ASSERT_TRUE(driver);
  EXPECT_EQ(driver->version, "580.95.05");
  EXPECT_EQ(driver->cuda_version, 13000);
  EXPECT_TRUE(driver->memory_limits);
  EXPECT_NE(driver->library.find("test_nvml"), std::string::npos);

  const auto cards = (*nvml)->Cards();
  ASSERT_TRUE(cards);
  ASSERT_EQ(cards->size(), 3u);
  ASSERT_TRUE((*cards)[0]);
  const Card& card = *(*cards)[0];
  EXPECT_EQ(card.uuid, "GPU-0a100000-0000-0000-0000-000000000000");
  EXPECT_EQ(card.name, "Test card 0");
  EXPECT_EQ(card.memory_bytes, std::uint64_t{1000} << 20);
  EXPECT_EQ(card.reserved_bytes, std::uint64_t{10} << 20);
  EXPECT_EQ(card.cc_major, 8);
  EXPECT_EQ(card.sm_count, 80);
  EXPECT_EQ(card.pci.bus, 1u);
  ASSERT_FALSE((*cards)[2]) << "card 2 fell off the bus";
  EXPECT_EQ((*cards)[2].error().message, "card 2: GPU is lost");

  const auto usages = (*nvml)->Usages();
  ASSERT_TRUE(usages);
  const CardUsage& usage = *(*usages)[0];
  EXPECT_EQ(usage.used_bytes, std::uint64_t{300} << 20);
  EXPECT_EQ(usage.gpu_percent, 42);
  ASSERT_EQ(usage.processes.size(), 200u) << "the list grows past the first buffer";
  EXPECT_EQ(usage.processes[0].pid, 1000u);
  EXPECT_EQ(usage.processes[0].bytes, std::uint64_t{1} << 20) << "compute and graphics: once";
  EXPECT_FALSE(usage.processes[199].bytes) << "NOT_AVAILABLE is no figure";
}

TEST(NvmlReader, SetsAndReadsTheLimitOfACgroup) {
  unsetenv("TEST_NVML_HANG");
  auto nvml = OpenNvml(TestLibrary());
  ASSERT_TRUE(nvml);
  ASSERT_TRUE((*nvml)->SetMemoryLimit(1, "/sys/fs/cgroup/a", 4096));
  const auto limit = (*nvml)->GetMemoryLimit(1, "/sys/fs/cgroup/a");
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->hard_bytes, 4096u);
  EXPECT_EQ((*nvml)->SetMemoryLimit(7, "/x", 1).error().code, Code::kNotFound);
}

TEST(NvmlReader, ACardThatHangsLeavesTheOthersAlive) {
  setenv("TEST_NVML_HANG", "1", 1);
  OpenOptions options = TestLibrary();
  options.call_timeout = std::chrono::milliseconds(300);
  auto nvml = OpenNvml(options);
  ASSERT_TRUE(nvml) << nvml.error().message;
  for (int round = 0; round < 2; ++round) {
    const auto cards = (*nvml)->Cards();
    ASSERT_TRUE(cards);
    EXPECT_TRUE((*cards)[0]) << (*cards)[0].error().message;
    ASSERT_FALSE((*cards)[1]);
    EXPECT_EQ((*cards)[1].error().code, Code::kDeadlineExceeded);
  }
  unsetenv("TEST_NVML_HANG");
}

TEST(NvmlReader, ADriverThatHangsAtInitIsAnError) {
  setenv("TEST_NVML_HANG", "init", 1);
  const auto nvml = OpenNvml({TESSERA_TEST_NVML, std::chrono::milliseconds(50)});
  ASSERT_FALSE(nvml);
  EXPECT_EQ(nvml.error().message, "driver: no answer in time");
  unsetenv("TEST_NVML_HANG");
}

TEST(NvmlReader, MissingOrForeignLibrariesAreNamed) {
  auto nvml = OpenNvml({"/nonexistent/libnvidia-ml.so.1", std::chrono::milliseconds(50)});
  ASSERT_FALSE(nvml);
  EXPECT_EQ(nvml.error().code, Code::kUnavailable);
  EXPECT_NE(nvml.error().message.find("/nonexistent/libnvidia-ml.so.1"), std::string::npos);
  nvml = OpenNvml({"libm.so.6", std::chrono::milliseconds(50)});
  ASSERT_FALSE(nvml);
  EXPECT_NE(nvml.error().message.find("lacks functions"), std::string::npos);
}

}  // namespace
}  // namespace tessera::driver
