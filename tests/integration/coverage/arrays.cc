// Arrays and mipmapped arrays: charged by what the driver needs for the layout, not by width x
// height.
#include <memory>

#include "tests/integration/coverage/row.h"

namespace tessera::testing {
namespace {

CUDA_ARRAY_DESCRIPTOR Flat(std::uint64_t bytes) {
  CUDA_ARRAY_DESCRIPTOR descriptor{};
  descriptor.Width = 4096;
  descriptor.Height = bytes / (4096 * 16);
  descriptor.Format = CU_AD_FORMAT_FLOAT;
  descriptor.NumChannels = 4;
  return descriptor;
}

CUDA_ARRAY3D_DESCRIPTOR Deep(std::uint64_t bytes) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = 1024;
  descriptor.Height = 256;
  descriptor.Depth = bytes / (1024 * 256 * 16);
  descriptor.Format = CU_AD_FORMAT_FLOAT;
  descriptor.NumChannels = 4;
  return descriptor;
}

using Take = std::function<CUresult(void** handle, std::uint64_t bytes)>;
using Release = std::function<CUresult(void* handle)>;

Steps Pair(Bench& bench, Take take, Release release) {
  auto handle = std::make_shared<void*>(nullptr);
  Steps steps;
  // A descriptor's sides are bounded, so fill first and ask for more than is left.
  steps.exceed = [=, &bench] {
    bench.FillLeaving(32 * kMiB);
    CUresult result = take(handle.get(), kPiece);
    bench.EmptyFill();
    return result;
  };
  steps.take = [=] { return take(handle.get(), kPiece); };
  steps.release = [=] { return release(*handle); };
  return steps;
}

CUarray* AsArray(void** handle) { return reinterpret_cast<CUarray*>(handle); }
CUmipmappedArray* AsMipmap(void** handle) { return reinterpret_cast<CUmipmappedArray*>(handle); }

CUresult TakeFlat(void** handle, std::uint64_t bytes) {
  CUDA_ARRAY_DESCRIPTOR descriptor = Flat(bytes);
  return DRIVER(cuArrayCreate_v2)(AsArray(handle), &descriptor);
}
CUresult DestroyArray(void* handle) { return DRIVER(cuArrayDestroy)(static_cast<CUarray>(handle)); }
CUresult TakeMipmap(void** handle, std::uint64_t bytes) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor = Deep(bytes);
  return DRIVER(cuMipmappedArrayCreate)(AsMipmap(handle), &descriptor, 4);
}
CUresult DestroyMipmap(void* handle) {
  return DRIVER(cuMipmappedArrayDestroy)(static_cast<CUmipmappedArray>(handle));
}

}  // namespace

void RegisterArrays(std::vector<Entry>& entries) {
  entries.push_back({"cuArrayCreate_v2", [](Bench& bench, void* function) {
                       return Pair(
                           bench,
                           [=](void** handle, std::uint64_t bytes) {
                             CUDA_ARRAY_DESCRIPTOR descriptor = Flat(bytes);
                             return AS(cuArrayCreate_v2, function)(AsArray(handle), &descriptor);
                           },
                           DestroyArray);
                     }});
  entries.push_back({"cuArray3DCreate_v2", [](Bench& bench, void* function) {
                       return Pair(
                           bench,
                           [=](void** handle, std::uint64_t bytes) {
                             CUDA_ARRAY3D_DESCRIPTOR descriptor = Deep(bytes);
                             return AS(cuArray3DCreate_v2, function)(AsArray(handle), &descriptor);
                           },
                           DestroyArray);
                     }});
  entries.push_back({"cuMipmappedArrayCreate", [](Bench& bench, void* function) {
                       return Pair(
                           bench,
                           [=](void** handle, std::uint64_t bytes) {
                             CUDA_ARRAY3D_DESCRIPTOR descriptor = Deep(bytes);
                             return AS(cuMipmappedArrayCreate, function)(AsMipmap(handle),
                                                                         &descriptor, 4);
                           },
                           DestroyMipmap);
                     }});
  entries.push_back({"cuArrayDestroy", [](Bench& bench, void* function) {
                       return Pair(bench, TakeFlat, [=](void* handle) {
                         return AS(cuArrayDestroy, function)(static_cast<CUarray>(handle));
                       });
                     }});
  entries.push_back({"cuMipmappedArrayDestroy", [](Bench& bench, void* function) {
                       return Pair(bench, TakeMipmap, [=](void* handle) {
                         return AS(cuMipmappedArrayDestroy,
                                   function)(static_cast<CUmipmappedArray>(handle));
                       });
                     }});
}

}  // namespace tessera::testing
