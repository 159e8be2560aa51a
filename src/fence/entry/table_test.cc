// The generated tables: names, versions, variants.
#include "entry/table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tessera::fence {
namespace {

TEST(Table, FindsEveryNameAndNoOther) {
  ASSERT_GT(EntryCount(), 1000);
  for (EntryIndex entry = 0; entry < EntryCount(); ++entry)
    EXPECT_EQ(FindEntry(EntryName(entry)), entry);
  for (const char* name : {"", "cu", "cuInit2", "nvmlNone", "curl_easy_init", "cublasCreate_v2"}) {
    EXPECT_EQ(FindEntry(name), kNoEntry) << name;
  }
}

TEST(Table, HookedNamesHaveAWrapperAndOthersNone) {
  std::set<void*> wrappers;
  for (EntryIndex entry = 0; entry < EntryCount(); ++entry) {
    EXPECT_EQ(WrapperOf(entry) != nullptr, IsHooked(entry)) << EntryName(entry);
    if (!IsHooked(entry)) continue;
    EXPECT_TRUE(wrappers.insert(WrapperOf(entry)).second) << EntryName(entry);
  }
}

std::string Variant(const char* name, int version, bool per_thread) {
  const EntryIndex variant = VariantFor(FindEntry(name), version, per_thread);
  return variant == kNoEntry ? "" : EntryName(variant);
}

// Rows of what the CUDA 13.0 runtime asks for and has to get.
TEST(Table, VersionsLeadToTheAbiThatTheRuntimeExpects) {
  EXPECT_EQ(Variant("cuMemAlloc", 3020, false), "cuMemAlloc_v2");
  EXPECT_EQ(Variant("cuMemAlloc", 2000, false), "cuMemAlloc");
  EXPECT_EQ(Variant("cuCtxGetDevice", 2000, false), "cuCtxGetDevice");
  EXPECT_EQ(Variant("cuCtxGetDevice", 13000, false), "cuCtxGetDevice_v2");
  EXPECT_EQ(Variant("cuCtxCreate", 3020, false), "cuCtxCreate_v2");
  EXPECT_EQ(Variant("cuGetProcAddress", 11030, false), "cuGetProcAddress");
  EXPECT_EQ(Variant("cuGetProcAddress", 12000, false), "cuGetProcAddress_v2");
  EXPECT_EQ(Variant("cuMemPrefetchAsync", 8000, true), "cuMemPrefetchAsync_ptsz");
  EXPECT_EQ(Variant("cuMemPrefetchAsync", 12020, true), "cuMemPrefetchAsync_v2_ptsz");
  EXPECT_EQ(Variant("cuMemPrefetchAsync", 12019, false), "cuMemPrefetchAsync");
  EXPECT_EQ(Variant("cuLaunchKernel", 7000, true), "cuLaunchKernel_ptsz");
  EXPECT_EQ(Variant("cuLaunchKernel", 4000, true), "cuLaunchKernel");
  EXPECT_EQ(Variant("cuMemcpy3DBatchAsync", 12080, true), "cuMemcpy3DBatchAsync_ptsz");
  EXPECT_EQ(Variant("cuMemcpy3DBatchAsync", 13000, true), "cuMemcpy3DBatchAsync_v2_ptsz");
  EXPECT_EQ(Variant("cuDevicePrimaryCtxRelease", 7000, false), "cuDevicePrimaryCtxRelease");
  EXPECT_EQ(Variant("cuDeviceGetUuid", 9020, false), "cuDeviceGetUuid");
  EXPECT_EQ(Variant("cuStreamGetCaptureInfo", 12030, true), "cuStreamGetCaptureInfo_v3_ptsz");
  EXPECT_EQ(Variant("cuMemAllocAsync", 11010, false), "");
}

}  // namespace
}  // namespace tessera::fence
