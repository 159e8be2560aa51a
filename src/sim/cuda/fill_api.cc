// The fill functions. Those without a stream use the default one and, as the driver's, do not wait.
#include "sim/cuda/api.h"
#include "sim/cuda/copy.h"

using namespace tessera::sim;

namespace {

CUresult Fill(CUdeviceptr destination, std::size_t pitch, unsigned value, unsigned element,
              std::size_t width, std::size_t height, CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  return SubmitFill(*stream, {destination, pitch, value, element, width, height});
}

CUresult FillNow(CUdeviceptr destination, std::size_t pitch, unsigned value, unsigned element,
                 std::size_t width, std::size_t height) {
  SIM_TRY(ForbiddenInCapture());
  return Fill(destination, pitch, value, element, width, height, PerThreadDefaultStream::Default());
}

}  // namespace

SIM_API(cuMemsetD8_v2)(CUdeviceptr d, unsigned char v, std::size_t n) {
  return FillNow(d, 0, v, 1, n, 1);
}
SIM_API(cuMemsetD16_v2)(CUdeviceptr d, unsigned short v, std::size_t n) {
  return FillNow(d, 0, v, 2, n, 1);
}
SIM_API(cuMemsetD32_v2)(CUdeviceptr d, unsigned v, std::size_t n) {
  return FillNow(d, 0, v, 4, n, 1);
}
SIM_API(cuMemsetD2D8_v2)(CUdeviceptr d, std::size_t p, unsigned char v, std::size_t w,
                         std::size_t h) {
  return FillNow(d, p, v, 1, w, h);
}
SIM_API(cuMemsetD2D16_v2)(CUdeviceptr d, std::size_t p, unsigned short v, std::size_t w,
                          std::size_t h) {
  return FillNow(d, p, v, 2, w, h);
}
SIM_API(cuMemsetD2D32_v2)(CUdeviceptr d, std::size_t p, unsigned v, std::size_t w, std::size_t h) {
  return FillNow(d, p, v, 4, w, h);
}
SIM_API(cuMemsetD8)(CUdeviceptr_v1 d, unsigned char v, unsigned n) {
  return FillNow(d, 0, v, 1, n, 1);
}
SIM_API(cuMemsetD16)(CUdeviceptr_v1 d, unsigned short v, unsigned n) {
  return FillNow(d, 0, v, 2, n, 1);
}
SIM_API(cuMemsetD32)(CUdeviceptr_v1 d, unsigned v, unsigned n) { return FillNow(d, 0, v, 4, n, 1); }
SIM_API(cuMemsetD2D8)(CUdeviceptr_v1 d, unsigned p, unsigned char v, unsigned w, unsigned h) {
  return FillNow(d, p, v, 1, w, h);
}
SIM_API(cuMemsetD2D16)(CUdeviceptr_v1 d, unsigned p, unsigned short v, unsigned w, unsigned h) {
  return FillNow(d, p, v, 2, w, h);
}
SIM_API(cuMemsetD2D32)(CUdeviceptr_v1 d, unsigned p, unsigned v, unsigned w, unsigned h) {
  return FillNow(d, p, v, 4, w, h);
}
SIM_API(cuMemsetD8Async)(CUdeviceptr d, unsigned char v, std::size_t n, CUstream t) {
  return Fill(d, 0, v, 1, n, 1, t);
}
SIM_API(cuMemsetD16Async)(CUdeviceptr d, unsigned short v, std::size_t n, CUstream t) {
  return Fill(d, 0, v, 2, n, 1, t);
}
SIM_API(cuMemsetD32Async)(CUdeviceptr d, unsigned v, std::size_t n, CUstream t) {
  return Fill(d, 0, v, 4, n, 1, t);
}
SIM_API(cuMemsetD2D8Async)(CUdeviceptr d, std::size_t p, unsigned char v, std::size_t w,
                           std::size_t h, CUstream t) {
  return Fill(d, p, v, 1, w, h, t);
}
SIM_API(cuMemsetD2D16Async)(CUdeviceptr d, std::size_t p, unsigned short v, std::size_t w,
                            std::size_t h, CUstream t) {
  return Fill(d, p, v, 2, w, h, t);
}
SIM_API(cuMemsetD2D32Async)(CUdeviceptr d, std::size_t p, unsigned v, std::size_t w, std::size_t h,
                            CUstream t) {
  return Fill(d, p, v, 4, w, h, t);
}
