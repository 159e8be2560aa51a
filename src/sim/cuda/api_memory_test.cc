// What programs ask of their memory: host memory, managed memory, pools, arrays, textures.
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "sim/cuda/testing/sim_device.h"
#include "sim/state/node_state.h"

namespace tessera::sim::testing {
namespace {

constexpr std::size_t kBlock = 2 << 20;

using MemoryTest = DeviceTest;

TEST_F(MemoryTest, HostMemoryInEveryForm) {
  void *first = nullptr, *second = nullptr;
  OK(cuMemAllocHost_v2(&first, 5000));
  OK(cuMemAllocHost(&second, 5000));
  CUdeviceptr_v1 low = 0;
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuMemHostGetDevicePointer(&low, first, 0))
      << "lies above 4 GiB";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(nullptr, first, 0));
  OK(cuMemFreeHost(first));
  OK(cuMemFreeHost(second));
  std::vector<char> own(10'000);
  OK(cuMemHostRegister(own.data(), own.size(), 0));
  EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(own.data(), 100, 0));
  OK(cuMemHostUnregister(own.data()));
  EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(own.data()));
}

TEST_F(MemoryTest, PointersTakeOneAttribute) {
  const CUdeviceptr word = Word();
  unsigned on = 1, got = 0;
  OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, word));
  OK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, word));
  EXPECT_EQ(1u, got & 1);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, word));
}

TEST_F(MemoryTest, ManagedMemoryIsPrefetchedAndDiscarded) {
  CUdeviceptr managed = 0;
  OK(cuMemAllocManaged(&managed, kBlock, CU_MEM_ATTACH_GLOBAL));
  std::memset(reinterpret_cast<void*>(managed), 5, 100);
  CUstream stream{};
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemLocation card{CU_MEM_LOCATION_TYPE_DEVICE, 0}, host{CU_MEM_LOCATION_TYPE_HOST, 0};
  OK(cuMemPrefetchAsync_v2(managed, kBlock, card, 0, stream));
  OK(cuStreamSynchronize(stream));
  int where = -5, type = 0;
  void* data[] = {&where, &type};
  std::size_t sizes[] = {sizeof where, sizeof type};
  CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID,
                                        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE};
  OK(cuMemRangeGetAttributes(data, sizes, attributes, 2, managed, kBlock));
  EXPECT_EQ(0, where);
  EXPECT_EQ(CU_MEM_LOCATION_TYPE_DEVICE, type);
  std::size_t bytes = kBlock, first = 0;
  OK(cuMemPrefetchBatchAsync(&managed, &bytes, 1, &host, &first, 1, 0, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemRangeGetAttributes(data, sizes, attributes, 2, managed, kBlock));
  EXPECT_EQ(CU_MEM_LOCATION_TYPE_HOST, type);
  OK(cuMemDiscardBatchAsync(&managed, &bytes, 1, 0, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(0, *reinterpret_cast<char*>(managed));
  OK(cuMemDiscardAndPrefetchBatchAsync(&managed, &bytes, 1, &card, &first, 1, 0, stream));
  OK(cuStreamSynchronize(stream));
  const CUdeviceptr other = Word();
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync_v2(other, 4, card, 0, stream));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(&managed, &bytes, 0, 0, stream));
}

TEST_F(MemoryTest, PoolsOfLocations) {
  CUmemLocation card{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool by_location{}, by_device{}, current{};
  OK(cuMemGetDefaultMemPool(&by_location, &card, CU_MEM_ALLOCATION_TYPE_PINNED));
  OK(cuDeviceGetDefaultMemPool(&by_device, 0));
  EXPECT_EQ(by_device, by_location);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = card;
  CUmemoryPool own{};
  OK(cuMemPoolCreate(&own, &properties));
  OK(cuMemSetMemPool(&card, CU_MEM_ALLOCATION_TYPE_PINNED, own));
  OK(cuMemGetMemPool(&current, &card, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(own, current);
  CUmemAccess_flags access{};
  CUmemLocation second{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  OK(cuMemPoolGetAccess(&access, own, &second));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_NONE, access);
  const CUmemAccessDesc open{second, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemPoolSetAccess(own, &open, 1));
  OK(cuMemPoolGetAccess(&access, own, &second));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, access);
  OK(cuMemPoolDestroy(own));
  OK(cuMemGetMemPool(&current, &card, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(by_device, current) << "the default one again";
}

TEST_F(MemoryTest, PhysicalMemoryKnowsWhatItWasMadeAs) {
  CUmemAllocationProp properties{}, back{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t granularity = 0;
  OK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(kBlock, granularity);
  CUmemGenericAllocationHandle handle = 0;
  OK(cuMemCreate(&handle, kBlock, &properties, 0));
  OK(cuMemGetAllocationPropertiesFromHandle(&back, handle));
  EXPECT_EQ(1, back.location.id);
  EXPECT_EQ(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, back.requestedHandleTypes);
  OK(cuMemRelease(handle));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(&back, handle));
}

TEST_F(MemoryTest, ArraysSayWhatTheyAre) {
  const CUDA_ARRAY_DESCRIPTOR shape{64, 32, CU_AD_FORMAT_FLOAT, 2};
  CUarray array{};
  OK(cuArrayCreate_v2(&array, &shape));
  CUDA_ARRAY_DESCRIPTOR got{};
  OK(cuArrayGetDescriptor_v2(&got, array));
  EXPECT_EQ(64u, got.Width);
  EXPECT_EQ(CU_AD_FORMAT_FLOAT, got.Format);
  CUDA_ARRAY_DESCRIPTOR_v1 old{};
  OK(cuArrayGetDescriptor(&old, array));
  EXPECT_EQ(32u, old.Height);
  CUDA_ARRAY3D_DESCRIPTOR_v1 old_box{};
  OK(cuArray3DGetDescriptor(&old_box, array));
  EXPECT_EQ(0u, old_box.Depth);
  CUDA_ARRAY_SPARSE_PROPERTIES sparse{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuArrayGetSparseProperties(&sparse, array));
  CUarray plane{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuArrayGetPlane(&plane, array, 0)) << "not of planes";
  OK(cuArrayDestroy(array));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuArrayGetDescriptor_v2(&got, array));
  const CUDA_ARRAY3D_DESCRIPTOR video{64, 32, 0, CU_AD_FORMAT_NV12, 3, 0};
  OK(cuArray3DCreate_v2(&array, &video));
  OK(cuArrayGetPlane(&plane, array, 1));
  OK(cuArrayGetDescriptor_v2(&got, plane));
  EXPECT_EQ(32u, got.Width);
  EXPECT_EQ(16u, got.Height);
  OK(cuArrayDestroy(array));
}

TEST_F(MemoryTest, SparseArraysTakeMemoryTileByTile) {
  const std::uint64_t before = FreeBytes(0);
  const CUDA_ARRAY3D_DESCRIPTOR shape{4096, 4096, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
  CUmipmappedArray mipmap{};
  OK(cuMipmappedArrayCreate(&mipmap, &shape, 2));
  EXPECT_EQ(before, FreeBytes(0)) << "no memory yet";
  CUDA_ARRAY_SPARSE_PROPERTIES sparse{};
  OK(cuMipmappedArrayGetSparseProperties(&sparse, mipmap));
  EXPECT_NE(0u, sparse.tileExtent.width);
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  OK(cuMipmappedArrayGetMemoryRequirements(&needs, mipmap, 0));
  EXPECT_GE(needs.size, std::size_t{4096} * 4096 * 4);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  CUmemGenericAllocationHandle memory = 0;
  OK(cuMemCreate(&memory, kBlock, &properties, 0));
  CUarrayMapInfo map{};
  map.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  map.resource.mipmap = mipmap;
  map.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  map.subresource.sparseLevel.extentWidth = sparse.tileExtent.width;
  map.subresource.sparseLevel.extentHeight = sparse.tileExtent.height;
  map.subresource.sparseLevel.extentDepth = 1;
  map.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
  map.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
  map.memHandle.memHandle = memory;
  map.deviceBitMask = 1;
  OK(cuMemMapArrayAsync(&map, 1, nullptr));
  OK(cuMemRelease(memory));
  EXPECT_EQ(before - kBlock, FreeBytes(0)) << "the mapping holds it";
  map.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
  OK(cuMemMapArrayAsync(&map, 1, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(before, FreeBytes(0));
  OK(cuMipmappedArrayDestroy(mipmap));
}

TEST_F(MemoryTest, TexturesAndSurfaces) {
  const CUDA_ARRAY3D_DESCRIPTOR shape{64, 32, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
  CUarray array{};
  OK(cuArray3DCreate_v2(&array, &shape));
  CUDA_RESOURCE_DESC resource{}, resource_back{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC how{}, how_back{};
  how.filterMode = CU_TR_FILTER_MODE_LINEAR;
  CUDA_RESOURCE_VIEW_DESC view{}, view_back{};
  view.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
  view.width = 64;
  CUtexObject texture{};
  OK(cuTexObjectCreate(&texture, &resource, &how, &view));
  OK(cuTexObjectGetResourceDesc(&resource_back, texture));
  EXPECT_EQ(array, resource_back.res.array.hArray);
  OK(cuTexObjectGetTextureDesc(&how_back, texture));
  EXPECT_EQ(CU_TR_FILTER_MODE_LINEAR, how_back.filterMode);
  OK(cuTexObjectGetResourceViewDesc(&view_back, texture));
  EXPECT_EQ(64u, view_back.width);
  OK(cuTexObjectDestroy(texture));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(texture));
  CUsurfObject surface{};
  OK(cuSurfObjectCreate(&surface, &resource));
  OK(cuSurfObjectGetResourceDesc(&resource_back, surface));
  OK(cuSurfObjectDestroy(surface));
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = 0x10;
  resource.res.linear.sizeInBytes = 4;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &resource, &how, nullptr));
}

TEST_F(MemoryTest, TextureReferencesKeepWhatIsSet) {
  CUtexref reference{};
  OK(cuTexRefCreate(&reference));
  std::size_t offset = 7, bytes = 0;
  CUdeviceptr memory = 0, got = 0;
  OK(cuMemAllocPitch_v2(&memory, &bytes, 256, 4, 4));
  OK(cuTexRefSetAddress_v2(&offset, reference, memory, 1024));
  EXPECT_EQ(0u, offset);
  OK(cuTexRefGetAddress_v2(&got, reference));
  EXPECT_EQ(memory, got);
  CUdeviceptr_v1 low = 0, low_got = 0;
  unsigned low_offset = 0;
  OK(cuMemAlloc(&low, 4096));
  OK(cuTexRefSetAddress(&low_offset, reference, low, 1024));
  OK(cuTexRefGetAddress(&low_got, reference));
  EXPECT_EQ(low, low_got);
  const CUDA_ARRAY_DESCRIPTOR shape{64, 4, CU_AD_FORMAT_UNSIGNED_INT8, 2};
  const CUDA_ARRAY_DESCRIPTOR_v1 old_shape{64, 4, CU_AD_FORMAT_UNSIGNED_INT8, 2};
  OK(cuTexRefSetAddress2D_v3(reference, &shape, memory, 256));
  OK(cuTexRefSetAddress2D_v2(reference, &shape, memory, 256));
  OK(cuTexRefSetAddress2D(reference, &old_shape, low, 256));
  CUarray_format format{};
  int channels = 0;
  OK(cuTexRefGetFormat(&format, &channels, reference));
  EXPECT_EQ(CU_AD_FORMAT_UNSIGNED_INT8, format);
  EXPECT_EQ(2, channels);
  OK(cuTexRefSetFormat(reference, CU_AD_FORMAT_HALF, 4));
  OK(cuTexRefGetFormat(&format, &channels, reference));
  EXPECT_EQ(CU_AD_FORMAT_HALF, format);
  CUaddress_mode mode{};
  OK(cuTexRefSetAddressMode(reference, 1, CU_TR_ADDRESS_MODE_WRAP));
  OK(cuTexRefGetAddressMode(&mode, reference, 1));
  EXPECT_EQ(CU_TR_ADDRESS_MODE_WRAP, mode);
  CUfilter_mode filter{};
  OK(cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR));
  OK(cuTexRefGetFilterMode(&filter, reference));
  EXPECT_EQ(CU_TR_FILTER_MODE_LINEAR, filter);
  OK(cuTexRefSetMipmapFilterMode(reference, CU_TR_FILTER_MODE_LINEAR));
  OK(cuTexRefGetMipmapFilterMode(&filter, reference));
  EXPECT_EQ(CU_TR_FILTER_MODE_LINEAR, filter);
  float bias = 0, least = 0, most = 0, border[4] = {1, 2, 3, 4}, border_got[4]{};
  OK(cuTexRefSetMipmapLevelBias(reference, 0.5f));
  OK(cuTexRefGetMipmapLevelBias(&bias, reference));
  EXPECT_EQ(0.5f, bias);
  OK(cuTexRefSetMipmapLevelClamp(reference, 1, 2));
  OK(cuTexRefGetMipmapLevelClamp(&least, &most, reference));
  EXPECT_EQ(2, most);
  OK(cuTexRefSetBorderColor(reference, border));
  OK(cuTexRefGetBorderColor(border_got, reference));
  EXPECT_EQ(4, border_got[3]);
  int anisotropy = 0;
  unsigned flags = 0;
  OK(cuTexRefSetMaxAnisotropy(reference, 8));
  OK(cuTexRefGetMaxAnisotropy(&anisotropy, reference));
  EXPECT_EQ(8, anisotropy);
  OK(cuTexRefSetFlags(reference, CU_TRSF_NORMALIZED_COORDINATES));
  OK(cuTexRefGetFlags(&flags, reference));
  EXPECT_EQ(unsigned{CU_TRSF_NORMALIZED_COORDINATES}, flags);
  CUarray array{}, array_got{};
  OK(cuArrayCreate_v2(&array, &shape));
  OK(cuTexRefSetArray(reference, array, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuTexRefGetArray(&array_got, reference));
  EXPECT_EQ(array, array_got);
  const CUDA_ARRAY3D_DESCRIPTOR levels{64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 2, 0};
  CUmipmappedArray mipmap{}, mipmap_got{};
  OK(cuMipmappedArrayCreate(&mipmap, &levels, 2));
  OK(cuTexRefSetMipmappedArray(reference, mipmap, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuTexRefGetMipmappedArray(&mipmap_got, reference));
  EXPECT_EQ(mipmap, mipmap_got);
  OK(cuTexRefDestroy(reference));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuTexRefDestroy(reference));
  CUarray none{};
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuSurfRefSetArray(reinterpret_cast<CUsurfref>(8), array, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuSurfRefGetArray(&none, reinterpret_cast<CUsurfref>(8)));
}

}  // namespace
}  // namespace tessera::sim::testing
