// NVML as a slice sees it, over a faked library of four cards of which the slice has the fourth and
// the second.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "contract/ledger_ops.h"
#include "contract/names.h"
#include "os/os.h"
#include "real.h"
#include "slice/slice.h"

namespace tessera::fence {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;
constexpr unsigned kCards = 4;
int cards[kCards];  // their addresses are the handles
nvmlDevice_t Handle(unsigned card) { return reinterpret_cast<nvmlDevice_t>(&cards[card]); }
unsigned CardOfHandle(nvmlDevice_t device) {
  return static_cast<unsigned>(reinterpret_cast<int*>(device) - cards);
}
std::string Uuid(unsigned card) {
  return "GPU-0000000" + std::to_string(card) + "-1111-2222-3333-444444444444";
}

bool started = false;
std::vector<std::pair<unsigned, unsigned>> process_samples;  // pid, smUtil

template <typename T>
nvmlReturn_t Fill(const std::vector<T>& all, unsigned* count, T* to) {
  const unsigned room = *count;
  *count = static_cast<unsigned>(all.size());
  if (all.size() > room || (to == nullptr && !all.empty())) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (std::size_t i = 0; i < all.size(); ++i) to[i] = all[i];
  return NVML_SUCCESS;
}

void FakeLibrary() {
  real::nvmlInit_v2 = []() {
    started = true;
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetCount_v2 = [](unsigned* count) {
    if (!started) return NVML_ERROR_UNINITIALIZED;
    *count = kCards;
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetCount = real::nvmlDeviceGetCount_v2;
  real::nvmlDeviceGetUUID = [](nvmlDevice_t device, char* text, unsigned length) {
    std::snprintf(text, length, "%s", Uuid(CardOfHandle(device)).c_str());
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetHandleByUUID = [](const char* uuid, nvmlDevice_t* device) {
    for (unsigned i = 0; i < kCards; ++i) {
      if (Uuid(i) != uuid) continue;
      *device = Handle(i);
      return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
  };
  real::nvmlDeviceGetHandleByPciBusId_v2 = [](const char* bus, nvmlDevice_t* device) {
    *device = Handle(static_cast<unsigned>(std::atoi(bus)));
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetHandleBySerial = real::nvmlDeviceGetHandleByPciBusId_v2;
  real::nvmlDeviceGetHandleByIndex_v2 = [](unsigned index, nvmlDevice_t* device) {
    *device = Handle(index);
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetIndex = [](nvmlDevice_t device, unsigned* index) {
    *index = CardOfHandle(device);
    return NVML_SUCCESS;
  };
  real::nvmlDeviceIsMigDeviceHandle = [](nvmlDevice_t, unsigned* is_mig) {
    *is_mig = 0;
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetMemoryInfo = [](nvmlDevice_t, nvmlMemory_t* memory) {
    if (!started) return NVML_ERROR_UNINITIALIZED;
    *memory = {80 * kGiB, 20 * kGiB, 60 * kGiB};
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetMemoryInfo_v2 = [](nvmlDevice_t, nvmlMemory_v2_t* memory) {
    *memory = {memory->version, 80 * kGiB, kGiB, 19 * kGiB, 60 * kGiB};
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetBAR1MemoryInfo = [](nvmlDevice_t, nvmlBAR1Memory_t* bar1) {
    *bar1 = {128 * kGiB, 100 * kGiB, 28 * kGiB};
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetComputeRunningProcesses_v3 = [](nvmlDevice_t, unsigned* count,
                                                     nvmlProcessInfo_t* to) {
    return Fill<nvmlProcessInfo_t>({{1, 55 * kGiB, 0, 0}, {unsigned(getpid()), kGiB, 0, 0}}, count,
                                   to);
  };
  real::nvmlDeviceGetComputeRunningProcesses = [](nvmlDevice_t, unsigned* count,
                                                  nvmlProcessInfo_v1_t* to) {
    return Fill<nvmlProcessInfo_v1_t>({{1, 55 * kGiB}}, count, to);
  };
  real::nvmlDeviceGetGraphicsRunningProcesses_v3 = real::nvmlDeviceGetComputeRunningProcesses_v3;
  real::nvmlDeviceGetProcessUtilization = [](nvmlDevice_t, nvmlProcessUtilizationSample_t* to,
                                             unsigned* count, unsigned long long) {
    std::vector<nvmlProcessUtilizationSample_t> all;
    for (auto [pid, sm] : process_samples) all.push_back({pid, 1, sm, sm / 2, 0, 0});
    return all.empty() ? NVML_ERROR_NOT_FOUND : Fill(all, count, to);
  };
  real::nvmlDeviceGetUtilizationRates = [](nvmlDevice_t, nvmlUtilization_t* rates) {
    *rates = {80, 40};
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetSamples = [](nvmlDevice_t, nvmlSamplingType_t, unsigned long long,
                                  nvmlValueType_t* type, unsigned* count, nvmlSample_t* samples) {
    *type = NVML_VALUE_TYPE_UNSIGNED_INT;
    *count = 2;
    if (samples != nullptr) samples[0].sampleValue.uiVal = 80, samples[1].sampleValue.uiVal = 40;
    return NVML_SUCCESS;
  };
  real::nvmlDeviceGetTopologyNearestGpus = [](nvmlDevice_t, nvmlGpuTopologyLevel_t, unsigned* count,
                                              nvmlDevice_t* to) {
    *count = kCards;
    if (to != nullptr) {
      for (unsigned i = 0; i < kCards; ++i) to[i] = Handle(i);
    }
    return NVML_SUCCESS;
  };
  real::nvmlGetExcludedDeviceCount = [](unsigned* count) {
    *count = 3;
    return NVML_SUCCESS;
  };
}

template <typename T>
void WriteFile(const std::string& path, const T& content) {
  FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(std::fwrite(&content, sizeof content, 1, file), 1u);
  std::fclose(file);
}

class NvmlTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    char pattern[] = "/tmp/tessera-nvml-XXXXXX";
    const std::string directory = mkdtemp(pattern);
    static contract::PolicyFile policy;
    policy.header.magic = contract::kPolicyMagic;
    policy.header.layout = contract::kPolicyLayout;
    policy.header.file_bytes = sizeof policy;
    policy.header.cards_offset = offsetof(contract::PolicyFile, cards);
    policy.header.card_stride = sizeof(contract::PolicyCard);
    policy.header.card_count = 2;
    policy.header.gates_offset = offsetof(contract::PolicyFile, gates);
    policy.header.gate_stride = sizeof(contract::PolicyGate);
    unsigned at = 0;
    for (unsigned card : {3u, 1u}) {
      contract::PolicyCard& entry = policy.cards[at++];
      const std::uint8_t uuid[16] = {
          0,    0,    0,   std::uint8_t(card), 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x44,
          0x44, 0x44, 0x44};
      std::memcpy(entry.uuid, uuid, 16);
      entry.limit_bytes = entry.ceiling_bytes = 10 * kGiB;
      entry.compute_percent = 100;
    }
    static contract::LedgerFile ledger;
    contract::InitLedger(ledger);
    WriteFile(directory + "/policy", policy);
    WriteFile(directory + "/ledger", ledger);
    setenv("TESSERA_SLICE_DIR", directory.c_str(), 1);
    ASSERT_EQ(AttachSlice(), Mode::kFenced) << SliceProblem();
    unlink((directory + "/policy").c_str());
    unlink((directory + "/ledger").c_str());
    rmdir(directory.c_str());
    FakeLibrary();
  }
  void SetUp() override {
    started = true;
    process_samples.clear();
  }
  void TearDown() override { OwnSlot(0)->held[0] = 0, TheSlice().ledger.Card(0).total = 0; }

  // As if this process had allocated on the slice's first card.
  static void Hold(std::uint64_t bytes) {
    contract::SlotCard* slot = OwnSlot(0);
    ASSERT_NE(slot, nullptr);
    contract::Store(slot->held[0], bytes << contract::kBytesShift);
    contract::Store(TheSlice().ledger.Card(0).total, bytes << contract::kBytesShift);
  }
};

TEST_F(NvmlTest, BeforeInitTheLibrarysOwnErrorIsReturned) {
  started = false;
  unsigned count = 77;
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
  nvmlDevice_t device = nullptr;
  EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_UNINITIALIZED);
  nvmlMemory_t memory;
  EXPECT_EQ(nvmlDeviceGetMemoryInfo(Handle(3), &memory), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
}

TEST_F(NvmlTest, OnlyTheSlicesCardsExistInItsOrder) {
  unsigned count = 0;
  ASSERT_EQ(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
  EXPECT_EQ(count, 2u);
  ASSERT_EQ(nvmlDeviceGetCount(&count), NVML_SUCCESS);
  EXPECT_EQ(count, 2u);
  nvmlDevice_t device = nullptr;
  ASSERT_EQ(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
  EXPECT_EQ(device, Handle(3));
  unsigned index = 77;
  ASSERT_EQ(nvmlDeviceGetIndex(device, &index), NVML_SUCCESS);
  EXPECT_EQ(index, 0u);
  ASSERT_EQ(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_SUCCESS);
  EXPECT_EQ(device, Handle(1));
  EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(2, &device), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlTest, OtherCardsAreNotFoundByAnyName) {
  nvmlDevice_t device = nullptr;
  EXPECT_EQ(nvmlDeviceGetHandleByUUID(Uuid(3).c_str(), &device), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetHandleByUUID(Uuid(0).c_str(), &device), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2("1", &device), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2("2", &device), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(nvmlDeviceGetHandleBySerial("0", &device), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(device, nullptr);
  unsigned excluded = 7;
  EXPECT_EQ(nvmlGetExcludedDeviceCount(&excluded), NVML_SUCCESS);
  EXPECT_EQ(excluded, 0u);
}

TEST_F(NvmlTest, ListsOfNeighboursAreThinnedOut) {
  unsigned count = 0;
  ASSERT_EQ(nvmlDeviceGetTopologyNearestGpus(Handle(3), NVML_TOPOLOGY_NODE, &count, nullptr),
            NVML_SUCCESS);
  EXPECT_EQ(count, 2u);
  nvmlDevice_t devices[4] = {};
  ASSERT_EQ(nvmlDeviceGetTopologyNearestGpus(Handle(3), NVML_TOPOLOGY_NODE, &count, devices),
            NVML_SUCCESS);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(devices[0], Handle(1));
  EXPECT_EQ(devices[1], Handle(3));
}

TEST_F(NvmlTest, MemoryIsTheSlicesAndAddsUp) {
  Hold(4 * kGiB);
  nvmlMemory_t memory;
  ASSERT_EQ(nvmlDeviceGetMemoryInfo(Handle(3), &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.total, 10 * kGiB);
  EXPECT_EQ(memory.used, 4 * kGiB);
  EXPECT_EQ(memory.free, 6 * kGiB);
  nvmlMemory_v2_t second{.version = nvmlMemory_v2};
  ASSERT_EQ(nvmlDeviceGetMemoryInfo_v2(Handle(3), &second), NVML_SUCCESS);
  EXPECT_EQ(second.total, 10 * kGiB);
  EXPECT_EQ(second.total, second.used + second.free + second.reserved);
  EXPECT_EQ(second.used, 4 * kGiB);
  nvmlBAR1Memory_t bar1;
  ASSERT_EQ(nvmlDeviceGetBAR1MemoryInfo(Handle(3), &bar1), NVML_SUCCESS);
  EXPECT_EQ(bar1.bar1Total, 10 * kGiB);
  EXPECT_EQ(bar1.bar1Used, 4 * kGiB);
  EXPECT_EQ(bar1.bar1Total, bar1.bar1Used + bar1.bar1Free);
}

TEST_F(NvmlTest, HoldingMoreThanALoweredLimitLeavesNothingFree) {
  Hold(12 * kGiB);
  nvmlMemory_t memory;
  ASSERT_EQ(nvmlDeviceGetMemoryInfo(Handle(3), &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.used, 10 * kGiB);
  EXPECT_EQ(memory.free, 0u);
}

TEST_F(NvmlTest, ProcessListsHoldOwnProcessesOnlyAndKeepTheProtocol) {
  unsigned count = 8;
  nvmlProcessInfo_t infos[8];
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(Handle(3), &count, infos), NVML_SUCCESS);
  EXPECT_EQ(count, 0u) << "the process of another tenant is not shown";
  count = 0;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(Handle(3), &count, nullptr), NVML_SUCCESS);
  Hold(3 * kGiB);
  count = 0;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(Handle(3), &count, nullptr),
            NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(count, 1u);
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(Handle(3), &count, infos), NVML_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(infos[0].pid, unsigned(getpid()));
  EXPECT_EQ(infos[0].usedGpuMemory, 3 * kGiB);
  EXPECT_EQ(infos[0].gpuInstanceId, 0xffffffffu);
  nvmlProcessInfo_v1_t first[8];
  count = 8;
  // The header declares the unversioned name with the first form's layout.
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses(Handle(3), &count, first), NVML_SUCCESS);
  EXPECT_EQ(first[0].pid, unsigned(getpid()));
  EXPECT_EQ(first[0].usedGpuMemory, 3 * kGiB);
  count = 8;
  ASSERT_EQ(nvmlDeviceGetGraphicsRunningProcesses_v3(Handle(3), &count, infos), NVML_SUCCESS);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(infos[0].usedGpuMemory, 3 * kGiB);
}

TEST_F(NvmlTest, UtilisationIsTheOwnProcessesPart) {
  Hold(kGiB);
  process_samples = {{1, 60}, {unsigned(getpid()), 20}};
  nvmlUtilization_t rates;
  ASSERT_EQ(nvmlDeviceGetUtilizationRates(Handle(3), &rates), NVML_SUCCESS);
  EXPECT_EQ(rates.gpu, 20u);
  EXPECT_EQ(rates.memory, 10u);
  unsigned count = 2;
  nvmlValueType_t type;
  nvmlSample_t samples[2];
  ASSERT_EQ(
      nvmlDeviceGetSamples(Handle(3), NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, samples),
      NVML_SUCCESS);
  EXPECT_EQ(samples[0].sampleValue.uiVal, 20u);
  EXPECT_EQ(samples[1].sampleValue.uiVal, 10u);
  ASSERT_EQ(nvmlDeviceGetSamples(Handle(3), NVML_TOTAL_POWER_SAMPLES, 0, &type, &count, samples),
            NVML_SUCCESS);
  EXPECT_EQ(samples[0].sampleValue.uiVal, 80u) << "power is the card's";
  nvmlProcessUtilizationSample_t list[4];
  count = 4;
  ASSERT_EQ(nvmlDeviceGetProcessUtilization(Handle(3), list, &count, 0), NVML_SUCCESS);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(list[0].pid, unsigned(getpid()));
  process_samples = {{1, 60}};
  ASSERT_EQ(nvmlDeviceGetUtilizationRates(Handle(3), &rates), NVML_SUCCESS);
  EXPECT_EQ(rates.gpu, 0u) << "another tenant's work";
}

}  // namespace
}  // namespace tessera::fence
