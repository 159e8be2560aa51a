#include <unistd.h>

#include <thread>

#include "sim/nvml/testing.h"

namespace tessera::sim::nvml {
namespace {

TEST_F(NvmlTest, WaitingEndsWithATimeout) {
  nvmlEventSet_t set = nullptr;
  nvmlEventData_t data;
  ASSERT_EQ(CALL(nvmlEventSetCreate, &set), NVML_SUCCESS);
  ASSERT_EQ(CALL(nvmlDeviceRegisterEvents, card_, nvmlEventTypeXidCriticalError, set),
            NVML_SUCCESS);
  EXPECT_EQ(CALL(nvmlEventSetWait_v2, set, &data, 10), NVML_ERROR_TIMEOUT);
  EXPECT_EQ(CALL(nvmlDeviceRegisterEvents, card_, nvmlEventTypeClock, set),
            NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(CALL(nvmlEventSetFree, set), NVML_SUCCESS);
  EXPECT_EQ(CALL(nvmlEventSetWait_v2, nullptr, &data, 10), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlTest, XidsComeInOrderToAWaiter) {
  nvmlEventSet_t set = nullptr;
  nvmlEventData_t data{};
  RaiseXid(0, 13);  // before registration: not for this set
  ASSERT_EQ(CALL(nvmlEventSetCreate, &set), NVML_SUCCESS);
  ASSERT_EQ(CALL(nvmlDeviceRegisterEvents, card_,
                 nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError, set),
            NVML_SUCCESS);
  std::thread raiser([] {
    usleep(30'000);
    RaiseXid(0, 31);
    RaiseXid(1, 62);
    RaiseXid(0, 79);
  });
  ASSERT_EQ(CALL(nvmlEventSetWait_v2, set, &data, 10'000), NVML_SUCCESS);
  EXPECT_EQ(data.eventData, 31u);
  EXPECT_EQ(data.device, card_);
  ASSERT_EQ(CALL(nvmlEventSetWait_v2, set, &data, 10'000), NVML_SUCCESS);
  EXPECT_EQ(data.eventData, 79u) << "the other card's is not ours";
  raiser.join();
  node_->cards[0].ecc_uncorrected.fetch_add(1);
  ASSERT_EQ(CALL(nvmlEventSetWait_v2, set, &data, 10'000), NVML_SUCCESS);
  EXPECT_EQ(data.eventType, static_cast<unsigned long long>(nvmlEventTypeDoubleBitEccError));
  node_->cards[0].lost.store(1);
  EXPECT_EQ(CALL(nvmlEventSetWait_v2, set, &data, 10'000), NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(CALL(nvmlEventSetFree, set), NVML_SUCCESS);
}

}  // namespace
}  // namespace tessera::sim::nvml
