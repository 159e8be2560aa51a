#include "sim/cuda/code_image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

namespace tessera::sim {
namespace {

// Built by nvcc from testing/kernels.cu: see CMakeLists.txt.
std::vector<std::uint8_t> Built(const std::string& name) {
  std::ifstream file(std::string(TESSERA_TEST_CODE) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void ExpectKernels(const CodeImage& image) {
  ASSERT_TRUE(image.kernels.contains("vector_add"));
  const KernelInfo& add = image.kernels.at("vector_add");
  ASSERT_EQ(4u, add.params.size());
  EXPECT_EQ(24u, add.params[3].offset);
  EXPECT_EQ(4u, add.params[3].size);
  EXPECT_EQ(256u, add.shared_bytes);
  EXPECT_GT(add.registers, 0u);
  ASSERT_TRUE(image.kernels.contains("bounded"));
  EXPECT_EQ(128u, image.kernels.at("bounded").max_threads);
  EXPECT_EQ(40u, image.kernels.at("bounded").params[0].size);
  ASSERT_TRUE(image.variables.contains("table"));
  EXPECT_EQ(1200u, image.variables.at("table").size);
  ASSERT_TRUE(image.variables.contains("filled"));
  std::uint32_t second = 0;
  auto filled = image.variables.at("filled").content;
  filled.resize(image.variables.at("filled").size);  // zeros at the end may be left out
  ASSERT_EQ(8u, filled.size());
  std::memcpy(&second, filled.data() + 4, 4);
  EXPECT_EQ(6u, second);
  EXPECT_TRUE(image.variables.at("factors").constant);
  EXPECT_TRUE(image.variables.at("shared_counter").managed);
}

TEST(CodeImageTest, EveryCompressionModeGivesTheSame) {
  for (const char* mode : {"none", "speed", "balance", "size"}) {
    SCOPED_TRACE(mode);
    const auto bytes = Built(std::string("kernels_") + mode + ".fatbin");
    const ImageResult cubin = ChooseImage(bytes, {8, 6});
    ASSERT_TRUE(cubin.ok);
    EXPECT_EQ(CodeKind::kCubin, cubin.image.kind);
    EXPECT_EQ(86u, cubin.image.arch);
    EXPECT_FALSE(cubin.image.opaque);
    ExpectKernels(cubin.image);
    const ImageResult ptx = ChooseImage(bytes, {8, 6}, true);
    ASSERT_TRUE(ptx.ok);
    EXPECT_EQ(CodeKind::kPtx, ptx.image.kind);
    ExpectKernels(ptx.image);
  }
}

TEST(CodeImageTest, ChoosesByTheCard) {
  const auto bytes = Built("kernels_many.fatbin");  // cubins 80, 86, 90; PTX 80
  const auto chosen = [&](std::uint32_t major, std::uint32_t minor) {
    return ChooseImage(bytes, {major, minor});
  };
  EXPECT_EQ(80u, chosen(8, 0).image.arch);
  EXPECT_EQ(86u, chosen(8, 9).image.arch);
  EXPECT_EQ(90u, chosen(9, 0).image.arch);
  EXPECT_EQ(CodeKind::kPtx, chosen(10, 0).image.kind);
  EXPECT_EQ(80u, chosen(10, 0).image.ptx_version);
  EXPECT_FALSE(chosen(7, 5).ok);
  EXPECT_EQ(ImageError::kNoBinaryForGpu, chosen(7, 5).error);
}

TEST(CodeImageTest, ClusterDimensionsAreRead) {
  const ImageResult chosen = ChooseImage(Built("kernels_many.fatbin"), {9, 0});
  ASSERT_TRUE(chosen.ok);
  ASSERT_TRUE(chosen.image.kernels.contains("clustered"));
  EXPECT_EQ(2u, chosen.image.kernels.at("clustered").cluster[0]);
}

TEST(CodeImageTest, BareCubinIsRefusedOnAnotherArchitecture) {
  const auto bytes = Built("kernels.cubin");  // sm_86
  EXPECT_TRUE(ChooseImage(bytes, {8, 9}).ok);
  EXPECT_EQ(ImageError::kNoBinaryForGpu, ChooseImage(bytes, {9, 0}).error);
  EXPECT_EQ(ImageError::kNoBinaryForGpu, ChooseImage(bytes, {8, 0}).error);
  const void* data = bytes.data();
  EXPECT_EQ(bytes.size(), ImageSize(&data));
}

TEST(CodeImageTest, TruncatedInputIsRefusedOrReadAsFarAsItGoes) {
  for (const char* name : {"kernels_none.fatbin", "kernels_size.fatbin", "kernels.cubin"}) {
    const auto bytes = Built(name);
    for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 64) {
      // The copy ends where the input does, so that a read beyond it is seen by the address
      // sanitizer.
      const std::vector<std::uint8_t> cut(bytes.begin(),
                                          bytes.begin() + static_cast<std::ptrdiff_t>(size));
      const ImageResult result = ChooseImage(cut, {8, 6});
      EXPECT_TRUE(!result.ok || result.image.kind != CodeKind::kNone);
    }
  }
}

TEST(CodeImageTest, DamagedInputNeverCrashes) {
  std::mt19937 random(7);
  for (const char* name :
       {"kernels_none.fatbin", "kernels_speed.fatbin", "kernels_size.fatbin", "kernels.cubin"}) {
    const auto bytes = Built(name);
    for (int round = 0; round < 400; ++round) {
      auto damaged = bytes;
      for (int i = 0; i < 8; ++i)
        damaged[random() % std::min<std::size_t>(damaged.size(), 4096)] =
            static_cast<std::uint8_t>(random());
      ChooseImage(damaged, {8, 6});
      ChooseImage(damaged, {8, 6}, true);
    }
  }
}

TEST(CodeImageTest, PtxWithoutVersionOrTargetIsInvalid) {
  EXPECT_EQ(ImageError::kInvalidPtx, ParsePtx(".target sm_80\n").error);
  EXPECT_FALSE(ParsePtx(".target sm_80\n").ok);
  EXPECT_FALSE(ParsePtx(".version 8.0\n").ok);
  EXPECT_TRUE(ParsePtx(".version 8.0 .target sm_90a, debug").ok);
  EXPECT_EQ(90u, ParsePtx(".version 8.0 .target sm_90a, debug").image.arch);
}

TEST(CodeImageTest, PtxCommentsAndBodiesHoldNoKernels) {
  const ImageResult parsed = ParsePtx(
      ".version 8.0 .target sm_80 // .entry not_one()\n/* .entry nor_this() */\n.func helper() { "
      ".reg .b32 %r; }\n"
      ".entry real(.param .align 8 .b8 p[24], .param .u8 q) { .local .align 4 .b8 l[32]; { ret; } "
      "}");
  ASSERT_TRUE(parsed.ok);
  ASSERT_EQ(1u, parsed.image.kernels.size());
  const KernelInfo& kernel = parsed.image.kernels.at("real");
  EXPECT_EQ(24u, kernel.params[0].size);
  EXPECT_EQ(24u, kernel.params[1].offset);
  EXPECT_EQ(32u, kernel.local_bytes);
}

TEST(CodeImageTest, Lz4RefusesWhatPointsOutside) {
  EXPECT_TRUE(DecompressLz4(std::vector<std::uint8_t>{0x10, 'a', 5, 0}, 8)
                  .empty());  // distance beyond the start
  EXPECT_TRUE(DecompressLz4(std::vector<std::uint8_t>{0xF0, 255, 255}, 8)
                  .empty());  // length that does not end
  EXPECT_TRUE(DecompressLz4(std::vector<std::uint8_t>{0x20, 'a', 'b'}, 8)
                  .empty());  // shorter than promised
  const auto run = DecompressLz4(std::vector<std::uint8_t>{0x14, 'a', 1, 0, 0x10, 'b'}, 10);
  EXPECT_EQ(std::string("aaaaaaaaab"), std::string(run.begin(), run.end()));
}

}  // namespace
}  // namespace tessera::sim
