// cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree, in every ABI.
#include "memory/linear.h"
#include "memory/own_usage.h"
#include "real.h"

namespace tessera::fence {
namespace {

// The 32-bit forms of CUDA 2: the driver keeps them for old programs and hands out addresses that
// fit.
using Pointer32 = CUdeviceptr_v1;

// What a pitched allocation may become: the driver rounds a row up to at most 512 bytes on every
// card so far (the texture pitch alignment). The real pitch is charged afterwards.
constexpr std::uint64_t kPitchGuess = 512;

std::uint64_t GuessPitched(std::uint64_t width, std::uint64_t height) {
  std::uint64_t size = 0;
  if (width > kMaxAllocation ||
      __builtin_mul_overflow((width + kPitchGuess - 1) & ~(kPitchGuess - 1), height, &size)) {
    return UINT64_MAX;
  }
  return size;
}

std::uint64_t PitchedSize(std::uint64_t pitch, std::uint64_t height) {
  std::uint64_t size = 0;
  return __builtin_mul_overflow(pitch, height, &size) ? UINT64_MAX : size;
}

}  // namespace
}  // namespace tessera::fence

using namespace tessera::fence;

extern "C" {

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  if (!Fenced() || dptr == nullptr || bytesize == 0) return real::cuMemAlloc_v2(dptr, bytesize);
  return AllocateLinear(dptr, bytesize, Kind::kLinear, [&](CUdeviceptr* pointer, std::uint64_t*) {
    return real::cuMemAlloc_v2(pointer, bytesize);
  });
}

CUresult CUDAAPI cuMemAlloc(Pointer32* dptr, unsigned int bytesize) {
  if (!Fenced() || dptr == nullptr || bytesize == 0) return real::cuMemAlloc(dptr, bytesize);
  CUdeviceptr wide = 0;
  const CUresult result =
      AllocateLinear(&wide, bytesize, Kind::kLinear, [&](CUdeviceptr* pointer, std::uint64_t*) {
        Pointer32 narrow = 0;
        const CUresult r = real::cuMemAlloc(&narrow, bytesize);
        *pointer = narrow;
        return r;
      });
  if (result == CUDA_SUCCESS) *dptr = static_cast<Pointer32>(wide);
  return result;
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pitch, size_t width, size_t height,
                                    unsigned int element) {
  if (!Fenced() || dptr == nullptr || pitch == nullptr || width == 0 || height == 0) {
    return real::cuMemAllocPitch_v2(dptr, pitch, width, height, element);
  }
  size_t real_pitch = 0;
  const CUresult result = AllocateLinear(dptr, GuessPitched(width, height), Kind::kLinear,
                                         [&](CUdeviceptr* pointer, std::uint64_t* size) {
                                           const CUresult r = real::cuMemAllocPitch_v2(
                                               pointer, &real_pitch, width, height, element);
                                           *size = PitchedSize(real_pitch, height);
                                           return r;
                                         });
  if (result == CUDA_SUCCESS) *pitch = real_pitch;
  return result;
}

CUresult CUDAAPI cuMemAllocPitch(Pointer32* dptr, unsigned int* pitch, unsigned int width,
                                 unsigned int height, unsigned int element) {
  if (!Fenced() || dptr == nullptr || pitch == nullptr || width == 0 || height == 0) {
    return real::cuMemAllocPitch(dptr, pitch, width, height, element);
  }
  unsigned int real_pitch = 0;
  CUdeviceptr wide = 0;
  const CUresult result = AllocateLinear(&wide, GuessPitched(width, height), Kind::kLinear,
                                         [&](CUdeviceptr* pointer, std::uint64_t* size) {
                                           Pointer32 narrow = 0;
                                           const CUresult r = real::cuMemAllocPitch(
                                               &narrow, &real_pitch, width, height, element);
                                           *pointer = narrow;
                                           *size = PitchedSize(real_pitch, height);
                                           return r;
                                         });
  if (result == CUDA_SUCCESS) {
    *dptr = static_cast<Pointer32>(wide);
    *pitch = real_pitch;
  }
  return result;
}

// Charged in full to the current context's card: the driver may move all of it there at any time.
CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  if (!Fenced() || dptr == nullptr || bytesize == 0)
    return real::cuMemAllocManaged(dptr, bytesize, flags);
  const int card = CurrentPlace().card;
  BeforeFloating(card, 0);
  const CUresult result =
      AllocateLinear(dptr, bytesize, Kind::kManaged, [&](CUdeviceptr* pointer, std::uint64_t*) {
        return real::cuMemAllocManaged(pointer, bytesize, flags);
      });
  if (result == CUDA_SUCCESS) AfterFloating(card, 0);
  return result;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr) {
  if (!Fenced()) return real::cuMemFree_v2(dptr);
  return FreeLinear(dptr, [&] { return real::cuMemFree_v2(dptr); });
}

CUresult CUDAAPI cuMemFree(Pointer32 dptr) {
  if (!Fenced()) return real::cuMemFree(dptr);
  return FreeLinear(dptr, [&] { return real::cuMemFree(dptr); });
}

}  // extern "C"
