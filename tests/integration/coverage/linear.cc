// cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged and the calls that free them.
#include <memory>

#include "tests/integration/coverage/row.h"

namespace tessera::testing {
namespace {

using Take = std::function<CUresult(CUdeviceptr* pointer, std::uint64_t bytes)>;
using Release = std::function<CUresult(CUdeviceptr pointer)>;

Steps Pair(Bench& bench, Take take, Release release) {
  auto pointer = std::make_shared<CUdeviceptr>(0);
  Steps steps;
  steps.exceed = [=, limit = bench.limit] { return take(pointer.get(), limit + kMiB); };
  steps.take = [=] { return take(pointer.get(), kPiece + 1); };
  steps.release = [=] { return release(*pointer); };
  return steps;
}

CUresult PlainTake(CUdeviceptr* pointer, std::uint64_t bytes) {
  return DRIVER(cuMemAlloc_v2)(pointer, bytes);
}
CUresult PlainRelease(CUdeviceptr pointer) { return DRIVER(cuMemFree_v2)(pointer); }

}  // namespace

void RegisterLinear(std::vector<Entry>& entries) {
  entries.push_back({"cuMemAlloc_v2", [](Bench& bench, void* function) {
                       return Pair(
                           bench,
                           [=](CUdeviceptr* pointer, std::uint64_t bytes) {
                             return AS(cuMemAlloc_v2, function)(pointer, bytes);
                           },
                           PlainRelease);
                     }});
  entries.push_back({"cuMemAllocPitch_v2", [](Bench& bench, void* function) {
                       return Pair(
                           bench,
                           [=](CUdeviceptr* pointer, std::uint64_t bytes) {
                             std::size_t pitch = 0;
                             return AS(cuMemAllocPitch_v2, function)(pointer, &pitch, 1,
                                                                     bytes / 512 + 1, 4);
                           },
                           PlainRelease);
                     }});
  entries.push_back({"cuMemAllocManaged", [](Bench& bench, void* function) {
                       return Pair(
                           bench,
                           [=](CUdeviceptr* pointer, std::uint64_t bytes) {
                             return AS(cuMemAllocManaged, function)(pointer, bytes,
                                                                    CU_MEM_ATTACH_GLOBAL);
                           },
                           PlainRelease);
                     }});
  entries.push_back({"cuMemFree_v2", [](Bench& bench, void* function) {
                       return Pair(bench, PlainTake, [=](CUdeviceptr pointer) {
                         return AS(cuMemFree_v2, function)(pointer);
                       });
                     }});
}

}  // namespace tessera::testing
