// Programs on MIG devices, each on a node of its own with one card that is cut in two.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/cuda/testing/driver.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// The card's devices have 3,000 and 1,000 MiB; a second card is whole.
class Mig : public testing::Test {
 protected:
  void SetUp() override {
    path_ = "/tmp/simcuda-mig-" + std::to_string(getpid());
    NodeDescription node = DefaultNode(2);
    CardSpec& card = node.specs[0];
    card.sm_clock_mhz += 1;  // CUDA's first: the faster one
    card.mig_capable = card.mig_enabled = 1;
    card.mig_count = 2;
    for (int i = 0; i < 2; ++i) {
      MigSpec& mig = card.mig[i];
      std::snprintf(mig.profile, sizeof mig.profile, "%dg.%dgb", 3 - 2 * i, 3 - 2 * i);
      mig.uuid[0] = 0xab;
      mig.uuid[15] = static_cast<std::uint8_t>(i + 1);
      mig.gpu_instance = static_cast<std::uint32_t>(1 + i);
      mig.sm_count = 42 - 28 * static_cast<unsigned>(i);
      mig.memory_bytes = (3000 - 2000 * static_cast<std::uint64_t>(i)) * kMiB;
    }
    ASSERT_EQ(CreateNode(path_.c_str(), node), 0);
  }
  void TearDown() override { unlink(path_.c_str()); }

  int Run(const char* child, const char* visible, const char* argument = "") {
    std::vector<std::string> environment{std::string(kEnvNodePath) + "=" + path_};
    if (visible) environment.push_back(std::string("CUDA_VISIBLE_DEVICES=") + visible);
    return RunAgain(child, argument, environment);
  }
  std::string path_;
};

const char kFirst[] = "MIG-ab000000-0000-0000-0000-000000000001";
const char kSecond[] = "MIG-ab000000-0000-0000-0000-000000000002";

// Devices: their number, and the MiB of the first.
int Sees(const std::string& wanted) {
  int count = 0;
  std::size_t bytes = 0;
  char text[64] = "none";
  if (CU(cuInit)(0) == CUDA_SUCCESS) {
    if (CU(cuDeviceGetCount)(&count) || CU(cuDeviceTotalMem_v2)(&bytes, 0)) return 2;
    std::snprintf(text, sizeof text, "%d %zu", count, bytes / kMiB);
  }
  if (wanted != text) std::fprintf(stderr, "wanted %s, saw %s\n", wanted.c_str(), text);
  return wanted == text ? 0 : 1;
}
const AddChild sees("mig-sees", Sees);

TEST_F(Mig, OneDeviceIsVisible) {
  const struct {
    const char *visible, *seen;
  } cases[] = {
      {nullptr, "1 3000"},
      {"0", "1 3000"},
      {kFirst, "1 3000"},
      {kSecond, "1 1000"},
      {"mig-AB000000-0000-0000-0000-000000000002", "1 1000"},
      {"MIG-ab", "none"},  // both
      {"MIG-ab000000-0000-0000-0000-000000000003", "none"},
      {"1,0", "1 23028"},  // a whole card and no MIG device beside it
      {"1", "1 23028"},
      {"MIG-ab000000-0000-0000-0000-000000000002,1", "1 1000"},
  };
  for (const auto& row : cases)
    EXPECT_EQ(Run("mig-sees", row.visible, row.seen), 0)
        << (row.visible ? row.visible : "nothing set");
}

int NamedByInstance(const std::string&) {
  char uuid[96];
  const CardSpec& spec = TestNode().specs[0];
  char* at = uuid + std::snprintf(uuid, sizeof uuid, "MIG-GPU-");
  for (int i = 0; i < 16; ++i)
    at += std::sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", spec.uuid[i]);
  std::sprintf(at, "/2/0");
  setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
  return Sees("1 1000");
}
const AddChild named_by_instance("mig-named-by-instance", NamedByInstance);

TEST_F(Mig, OldNamesAreUnderstood) { EXPECT_EQ(Run("mig-named-by-instance", nullptr), 0); }

int Identity(const std::string&) {
  char name[96];
  CUuuid first, second;
  int sms = 0;
  if (CU(cuInit)(0) || CU(cuDeviceGetName)(name, sizeof name, 0) ||
      CU(cuDeviceGetUuid)(&first, 0) || CU(cuDeviceGetUuid_v2)(&second, 0) ||
      CU(cuDeviceGetAttribute)(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))
    return 2;
  const CardSpec& spec = TestNode().specs[0];
  return std::strcmp(name, "NVIDIA A10G MIG 1g.1gb") == 0 && sms == 14 &&
                 std::memcmp(&first, spec.uuid, 16) == 0 &&
                 std::memcmp(&second, spec.mig[1].uuid, 16) == 0
             ? 0
             : 1;
}
const AddChild identity("mig-identity", Identity);

TEST_F(Mig, NamesItselfAndItsCard) { EXPECT_EQ(Run("mig-identity", kSecond), 0); }

// Takes memory piece by piece until it is refused, beside a process on the other device that does
// the same.
int Fills(const std::string& argument) {
  CUcontext context{};
  std::size_t free = 0, total = 0;
  if (CU(cuInit)(0) || CU(cuCtxCreate_v2)(&context, 0, 0) || CU(cuMemGetInfo_v2)(&free, &total))
    return 2;
  const std::size_t mine = std::strtoull(argument.c_str(), nullptr, 10) * kMiB;
  const std::size_t cost = TestNode().specs[0].context_bytes;
  if (total != mine || free != mine - cost) return 3;
  std::size_t got = 0;
  CUdeviceptr pointer = 0;
  CUresult last = CUDA_SUCCESS;
  while (got <= total && (last = CU(cuMemAlloc_v2)(&pointer, 2 * kMiB)) == CUDA_SUCCESS)
    got += 2 * kMiB;
  if (last != CUDA_ERROR_OUT_OF_MEMORY || got != free) return 4;
  if (CU(cuMemGetInfo_v2)(&free, &total) || free != 0) return 5;
  if (argument == "1000") return 0;
  // The other device is empty still, and stays out of reach.
  if (const int other =
          RunAgain("mig-fills", "1000", {std::string("CUDA_VISIBLE_DEVICES=") + kSecond}))
    return 10 + other;
  return CU(cuMemAlloc_v2)(&pointer, 2 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 6;
}
const AddChild fills("mig-fills", Fills);

TEST_F(Mig, RefusesBeyondItsOwnMemory) { EXPECT_EQ(Run("mig-fills", kFirst, "3000"), 0); }

}  // namespace
}  // namespace tessera::sim
