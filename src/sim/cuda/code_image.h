// Reads device code as programs carry it: fat binaries, cubins (ELF) and PTX text.
//
//   auto image = ChooseImage(bytes, {8, 6});
//   if (image) for (const KernelInfo& kernel : image->kernels) ...
//
// Nothing is executed: what the simulator needs is names, parameter layouts, resource counts and
// the sizes and first contents of variables. Every read is bounds-checked; damaged input gives an
// error, never a crash. Format: NVIDIA's ELF attributes as `cuobjdump -elf` prints them, the fat
// binary header as in the CUDA toolkit's fatbinary_section.h, compression as flagged by fatbinary
// (0x2000 LZ4, 0x8000 zstd). Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::sim {

struct ParamInfo {
  std::uint32_t offset = 0, size = 0;  // bytes
};

struct KernelInfo {
  std::string name;
  std::uint32_t registers = 0;           // per thread
  std::uint32_t shared_bytes = 0;        // static
  std::uint32_t const_bytes = 0;         // user constant memory of the module
  std::uint32_t local_bytes = 0;         // per thread
  std::uint32_t max_threads = 1024;      // per block
  std::uint32_t cluster[3] = {0, 0, 0};  // required cluster, 0 = none
  std::vector<ParamInfo> params;         // by ordinal
};

struct VariableInfo {
  std::string name;
  std::uint64_t size = 0;
  bool constant = false, managed = false;
  std::vector<std::uint8_t> content;  // shorter than size: the rest is zero
};

enum class CodeKind { kNone, kPtx, kCubin };

struct CodeImage {
  CodeKind kind = CodeKind::kNone;
  std::uint32_t arch = 0;         // 10 * major + minor
  std::uint32_t ptx_version = 0;  // attribute 5: arch of the PTX, 10 * major + minor
  std::uint64_t code_bytes = 0;  // instructions, taken from card memory together with the variables
  bool opaque = false;  // recognised but unreadable (unknown compression): any kernel name is taken
  std::map<std::string, KernelInfo, std::less<>> kernels;
  std::map<std::string, VariableInfo, std::less<>> variables;
};

enum class ImageError {
  kNoBinaryForGpu,  // nothing in it fits the card (CUDA_ERROR_NO_BINARY_FOR_GPU)
  kInvalidImage,    // not device code, or damaged (CUDA_ERROR_INVALID_IMAGE)
  kInvalidPtx,      // CUDA_ERROR_INVALID_PTX
};

struct ImageResult {
  CodeImage image;
  bool ok = false;
  ImageError error = ImageError::kInvalidImage;
};

struct ComputeCapability {
  std::uint32_t major, minor;
};

// Bytes of the image at `data` by its own headers, for the driver's calls that take no size: a
// wrapper 0x466243B1 is followed first (`*data` is moved to the image). 0 when it is none of the
// known forms. Text counts up to its NUL.
std::size_t ImageSize(const void** data);

// The image that the driver would take for this card: the largest cubin of the card's major with
// minor <= its, else the largest PTX not above it. With `ptx_only` cubins are passed over (CU_JIT
// target choice of forced JIT).
ImageResult ChooseImage(std::span<const std::uint8_t> bytes, ComputeCapability card,
                        bool ptx_only = false);

// One image of each kind; used by ChooseImage and by the linker.
ImageResult ParseCubin(std::span<const std::uint8_t> bytes);
ImageResult ParsePtx(std::string_view text);

bool IsFatbin(std::span<const std::uint8_t> bytes);
bool IsElf(std::span<const std::uint8_t> bytes);

// Arch of a cubin by its ELF header, 0 if it has none.
std::uint32_t CubinArch(std::span<const std::uint8_t> bytes);

// Payload of compressed fat binary entries. Empty on damage or when more than `size` bytes would
// come out.
std::vector<std::uint8_t> DecompressLz4(std::span<const std::uint8_t> bytes, std::size_t size);
std::vector<std::uint8_t> DecompressZstd(std::span<const std::uint8_t> bytes, std::size_t size);

}  // namespace tessera::sim
