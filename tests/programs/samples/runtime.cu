// Walks through the CUDA runtime and checks every result. One line per failed check on stderr; one
// JSON object on stdout with what must be the same bare and behind a fence. Exit 0 when no check
// failed.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "host_kernels.h"

namespace {

int checks = 0;
std::atomic<int> fails{0};
std::uint64_t digest = 1469598103934665603u;  // FNV-1a over every result

void Check(bool good, const char* what, int line) {
  ++checks;
  if (good) return;
  ++fails;
  std::fprintf(stderr, "runtime.cu:%d: failed: %s (last error %s)\n", line, what,
               cudaGetErrorName(cudaGetLastError()));
}

template <class T>
void Digest(const T* data, std::size_t count) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < count * sizeof(T); ++i) digest = (digest ^ bytes[i]) * 1099511628211u;
}

#define CHECK(condition) Check((condition), #condition, __LINE__)
#define OK(call) Check((call) == cudaSuccess, #call, __LINE__)

}  // namespace

extern "C" __global__ void VectorAdd(const float* a, const float* b, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
HOST_KERNEL(VectorAdd) {
  const float *a = ARG(0, const float*), *b = ARG(1, const float*);
  float* out = ARG(2, float*);
  for (std::size_t i = 0; i < THREADS && i < static_cast<std::size_t>(ARG(3, int)); ++i)
    out[i] = a[i] + b[i];
}

extern "C" __global__ void Increment(int* data, int n, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += by;
}
HOST_KERNEL(Increment) {
  int* data = ARG(0, int*);
  for (std::size_t i = 0; i < THREADS && i < static_cast<std::size_t>(ARG(1, int)); ++i)
    data[i] += ARG(2, int);
}

extern "C" __global__ void Cooperative(int* data, int n) {
  cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = i;
  grid.sync();
  if (i < n) data[i] *= 2;
}
HOST_KERNEL(Cooperative) {
  int* data = ARG(0, int*);
  for (std::size_t i = 0; i < THREADS && i < static_cast<std::size_t>(ARG(1, int)); ++i)
    data[i] = 2 * static_cast<int>(i);
}

__device__ int device_symbol[64];
__constant__ int constant_symbol[64];
__managed__ int managed_symbol = 41;

namespace {

constexpr int kCount = 1 << 16;

void CheckDevice() {
  int count = 0, driver = 0, runtime = 0;
  OK(cudaGetDeviceCount(&count));
  CHECK(count >= 1);
  OK(cudaDriverGetVersion(&driver));
  OK(cudaRuntimeGetVersion(&runtime));
  CHECK(driver >= runtime / 1000 * 1000);
  cudaDeviceProp prop;
  OK(cudaGetDeviceProperties(&prop, 0));
  CHECK(prop.multiProcessorCount > 0 && prop.warpSize == 32 && prop.major >= 7);
  int sms = 0;
  OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  CHECK(sms == prop.multiProcessorCount);
  std::size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  CHECK(free <= total && prop.totalGlobalMem == total);
  char bus[32];
  OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
  int back = -1;
  OK(cudaDeviceGetByPCIBusId(&back, bus));
  CHECK(back == 0);
  CHECK(cudaSetDevice(count) == cudaErrorInvalidDevice);
  cudaGetLastError();
  Digest(prop.name, std::strlen(prop.name));
  Digest(&prop.uuid, 1);
  Digest(&sms, 1);
}

void CheckCopies() {
  std::vector<int> in(kCount), out(kCount);
  std::iota(in.begin(), in.end(), 7);
  int *a = nullptr, *b = nullptr;
  OK(cudaMalloc(&a, kCount * sizeof(int)));
  OK(cudaMalloc(&b, kCount * sizeof(int)));
  OK(cudaMemcpy(a, in.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
  OK(cudaMemcpy(b, a, kCount * sizeof(int), cudaMemcpyDeviceToDevice));
  OK(cudaMemcpy(out.data(), b, kCount * sizeof(int), cudaMemcpyDefault));
  CHECK(in == out);
  OK(cudaMemset(b, 0x5a, kCount));
  OK(cudaMemcpy(out.data(), b, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(out[0] == 0x5a5a5a5a && out[kCount / 4] == in[kCount / 4]);
  Digest(out.data(), out.size());

  int* pitched = nullptr;
  std::size_t pitch = 0;
  OK(cudaMallocPitch(&pitched, &pitch, 100 * sizeof(int), 50));
  CHECK(pitch >= 100 * sizeof(int) && pitch % 32 == 0);
  OK(cudaMemcpy2D(pitched, pitch, in.data(), 100 * sizeof(int), 100 * sizeof(int), 50,
                  cudaMemcpyHostToDevice));
  std::vector<int> flat(5000);
  OK(cudaMemcpy2D(flat.data(), 100 * sizeof(int), pitched, pitch, 100 * sizeof(int), 50,
                  cudaMemcpyDeviceToHost));
  CHECK(std::memcmp(flat.data(), in.data(), flat.size() * sizeof(int)) == 0);

  cudaPitchedPtr cube;
  OK(cudaMalloc3D(&cube, make_cudaExtent(64, 8, 4)));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(in.data(), 64, 64, 8);
  copy.dstPtr = cube;
  copy.extent = make_cudaExtent(64, 8, 4);
  copy.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&copy));
  std::vector<unsigned char> box(64 * 8 * 4);
  cudaMemcpy3DParms back = {};
  back.srcPtr = cube;
  back.dstPtr = make_cudaPitchedPtr(box.data(), 64, 64, 8);
  back.extent = copy.extent;
  back.kind = cudaMemcpyDeviceToHost;
  OK(cudaMemcpy3D(&back));
  CHECK(std::memcmp(box.data(), in.data(), box.size()) == 0);

  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
  OK(cudaMallocArray(&array, &format, 100, 50));
  OK(cudaMemcpy2DToArray(array, 0, 0, in.data(), 400, 400, 50, cudaMemcpyHostToDevice));
  std::fill(flat.begin(), flat.end(), 0);
  OK(cudaMemcpy2DFromArray(flat.data(), 400, array, 0, 0, 400, 50, cudaMemcpyDeviceToHost));
  CHECK(std::memcmp(flat.data(), in.data(), flat.size() * sizeof(int)) == 0);
  OK(cudaFreeArray(array));

  CHECK(cudaMemcpy(reinterpret_cast<void*>(8), in.data(), 64, cudaMemcpyHostToDevice) !=
        cudaSuccess);
  cudaGetLastError();
  OK(cudaFree(a));
  OK(cudaFree(b));
  OK(cudaFree(pitched));
  OK(cudaFree(cube.ptr));
  OK(cudaFree(nullptr));
}

void CheckSymbols() {
  int values[64], back[64];
  std::iota(values, values + 64, 100);
  OK(cudaMemcpyToSymbol(device_symbol, values, sizeof values));
  OK(cudaMemcpyFromSymbol(back, device_symbol, sizeof back));
  CHECK(std::memcmp(values, back, sizeof back) == 0);
  OK(cudaMemcpyToSymbol(constant_symbol, values, sizeof values));
  std::memset(back, 0, sizeof back);
  OK(cudaMemcpyFromSymbol(back, constant_symbol, sizeof back));
  CHECK(std::memcmp(values, back, sizeof back) == 0);
  std::size_t size = 0;
  void* address = nullptr;
  OK(cudaGetSymbolSize(&size, device_symbol));
  OK(cudaGetSymbolAddress(&address, device_symbol));
  CHECK(size == sizeof device_symbol && address != nullptr);
  CHECK(managed_symbol == 41);
  managed_symbol = 42;
  OK(cudaDeviceSynchronize());
  CHECK(managed_symbol == 42);
}

void CheckLaunches() {
  std::vector<float> a(kCount), b(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) a[i] = i, b[i] = 3 * i;
  float *da = nullptr, *db = nullptr, *dout = nullptr;
  OK(cudaMalloc(&da, kCount * sizeof(float)));
  OK(cudaMalloc(&db, kCount * sizeof(float)));
  OK(cudaMalloc(&dout, kCount * sizeof(float)));
  OK(cudaMemcpy(da, a.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
  OK(cudaMemcpy(db, b.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
  VectorAdd<<<kCount / 256, 256>>>(da, db, dout, kCount);
  OK(cudaGetLastError());
  OK(cudaMemcpy(out.data(), dout, kCount * sizeof(float), cudaMemcpyDeviceToHost));
  bool right = true;
  for (int i = 0; i < kCount; ++i) right = right && out[i] == 4.0f * i;
  CHECK(right);
  Digest(out.data(), out.size());

  int *counter = nullptr, n = kCount, by = 5;
  OK(cudaMalloc(&counter, kCount * sizeof(int)));
  OK(cudaMemset(counter, 0, kCount * sizeof(int)));
  void* arguments[] = {&counter, &n, &by};
  OK(cudaLaunchKernel(reinterpret_cast<const void*>(Increment), dim3(kCount / 256), dim3(256),
                      arguments, 0, nullptr));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kCount / 256);
  config.blockDim = dim3(256);
  OK(cudaLaunchKernelEx(&config, Increment, counter, n, 6));
  void* cooperative[] = {&counter, &n};
  std::vector<int> ints(kCount);
  OK(cudaMemcpy(ints.data(), counter, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(ints[0] == 11 && ints[kCount - 1] == 11);
  int can = 0, blocks = 0, sms = 0;
  OK(cudaDeviceGetAttribute(&can, cudaDevAttrCooperativeLaunch, 0));
  OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Cooperative, 128, 0));
  CHECK(blocks > 0);
  if (can) {
    n = 4 * 128;
    OK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(Cooperative), dim3(4), dim3(128),
                                   cooperative, 0, nullptr));
    OK(cudaMemcpy(ints.data(), counter, n * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(ints[0] == 0 && ints[511] == 1022);
  }
  CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(Increment), dim3(1), dim3(4096), arguments,
                         0, nullptr) == cudaErrorInvalidConfiguration);
  cudaGetLastError();
  cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, VectorAdd));
  CHECK(attributes.maxThreadsPerBlock >= 256 && attributes.ptxVersion > 0);
  int grid = 0, block = 0;
  OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, VectorAdd));
  CHECK(grid > 0 && block > 0);
  OK(cudaFree(da));
  OK(cudaFree(db));
  OK(cudaFree(dout));
  OK(cudaFree(counter));
}

void CheckStreams() {
  cudaStream_t one, two;
  cudaEvent_t start, stop;
  OK(cudaStreamCreate(&one));
  OK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&stop));
  int *device = nullptr, *pinned = nullptr;
  OK(cudaMalloc(&device, kCount * sizeof(int)));
  OK(cudaMallocHost(&pinned, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) pinned[i] = i;
  OK(cudaEventRecord(start, one));
  OK(cudaMemcpyAsync(device, pinned, kCount * sizeof(int), cudaMemcpyHostToDevice, one));
  Increment<<<kCount / 256, 256, 0, one>>>(device, kCount, 1);
  OK(cudaEventRecord(stop, one));
  OK(cudaStreamWaitEvent(two, stop, 0));
  Increment<<<kCount / 256, 256, 0, two>>>(device, kCount, 1);
  OK(cudaMemcpyAsync(pinned, device, kCount * sizeof(int), cudaMemcpyDeviceToHost, two));
  OK(cudaStreamSynchronize(two));
  CHECK(pinned[0] == 2 && pinned[kCount - 1] == kCount + 1);
  OK(cudaEventSynchronize(stop));
  CHECK(cudaEventQuery(stop) == cudaSuccess && cudaStreamQuery(one) == cudaSuccess);
  float ms = -1;
  OK(cudaEventElapsedTime(&ms, start, stop));
  CHECK(ms >= 0);
  int called = 0;
  OK(cudaLaunchHostFunc(one, [](void* data) { *static_cast<int*>(data) = 77; }, &called));
  OK(cudaStreamSynchronize(one));
  CHECK(called == 77);
  cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, device));
  CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
  OK(cudaPointerGetAttributes(&attributes, pinned));
  CHECK(attributes.type == cudaMemoryTypeHost);
  OK(cudaPointerGetAttributes(&attributes, &called));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  std::vector<char> pages(1 << 20);
  void* base = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(pages.data()) + 4095) &
                                       ~std::uintptr_t{4095});
  OK(cudaHostRegister(base, 65536, cudaHostRegisterDefault));
  OK(cudaHostUnregister(base));
  int low = 0, high = 0;
  OK(cudaDeviceGetStreamPriorityRange(&low, &high));
  CHECK(low >= high);
  OK(cudaFree(device));
  OK(cudaFreeHost(pinned));
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(stop));
  OK(cudaStreamDestroy(one));
  OK(cudaStreamDestroy(two));
}

void CheckPools() {
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  int* memory = nullptr;
  OK(cudaMallocAsync(&memory, kCount * sizeof(int), stream));
  OK(cudaMemsetAsync(memory, 0, kCount * sizeof(int), stream));
  Increment<<<kCount / 256, 256, 0, stream>>>(memory, kCount, 9);
  std::vector<int> out(kCount);
  OK(cudaMemcpyAsync(out.data(), memory, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  OK(cudaFreeAsync(memory, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(out[0] == 9 && out[kCount - 1] == 9);
  cudaMemPool_t pool;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t threshold = 1 << 26, reserved = 0, used = 1;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  OK(cudaMallocAsync(&memory, 8 << 20, stream));
  OK(cudaFreeAsync(memory, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK(reserved >= (8 << 20) && used == 0);
  OK(cudaMemPoolTrimTo(pool, 0));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  CHECK(reserved == 0);
  int* managed = nullptr;
  OK(cudaMallocManaged(&managed, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) managed[i] = i;
  Increment<<<kCount / 256, 256>>>(managed, kCount, 3);
  OK(cudaDeviceSynchronize());
  CHECK(managed[10] == 13);
  OK(cudaFree(managed));
  OK(cudaStreamDestroy(stream));
}

void CheckGraphs() {
  int* data = nullptr;
  OK(cudaMalloc(&data, kCount * sizeof(int)));
  OK(cudaMemset(data, 0, kCount * sizeof(int)));
  cudaStream_t main_stream, side;
  cudaEvent_t fork, join;
  OK(cudaStreamCreate(&main_stream));
  OK(cudaStreamCreate(&side));
  OK(cudaEventCreate(&fork));
  OK(cudaEventCreate(&join));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal));
  Increment<<<kCount / 256, 256, 0, main_stream>>>(data, kCount, 1);
  OK(cudaEventRecord(fork, main_stream));
  OK(cudaStreamWaitEvent(side, fork, 0));
  Increment<<<kCount / 256, 256, 0, side>>>(data, kCount, 10);
  OK(cudaEventRecord(join, side));
  OK(cudaStreamWaitEvent(main_stream, join, 0));
  Increment<<<kCount / 256, 256, 0, main_stream>>>(data, kCount, 100);
  CHECK(cudaStreamSynchronize(main_stream) == cudaErrorStreamCaptureUnsupported);
  cudaGetLastError();
  const bool broken =
      cudaStreamEndCapture(main_stream, &graph) == cudaErrorStreamCaptureInvalidated;
  CHECK(broken);
  cudaGetLastError();

  OK(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal));
  Increment<<<kCount / 256, 256, 0, main_stream>>>(data, kCount, 1);
  OK(cudaEventRecord(fork, main_stream));
  OK(cudaStreamWaitEvent(side, fork, 0));
  Increment<<<kCount / 256, 256, 0, side>>>(data, kCount, 10);
  OK(cudaEventRecord(join, side));
  OK(cudaStreamWaitEvent(main_stream, join, 0));
  Increment<<<kCount / 256, 256, 0, main_stream>>>(data, kCount, 100);
  OK(cudaStreamEndCapture(main_stream, &graph));
  std::size_t nodes = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 3);
  OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(exec, main_stream));
  OK(cudaStreamSynchronize(main_stream));
  std::vector<int> out(kCount);
  OK(cudaMemcpy(out.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(out[0] == 333 && out[kCount - 1] == 333);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));

  // By hand: memset, then a kernel whose argument an update changes.
  OK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t clear, add;
  cudaMemsetParams memset = {};
  memset.dst = data;
  memset.elementSize = 4;
  memset.width = kCount;
  memset.height = 1;
  OK(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &memset));
  int n = kCount, by = 4;
  void* arguments[] = {&data, &n, &by};
  cudaKernelNodeParams kernel = {};
  kernel.func = reinterpret_cast<void*>(Increment);
  kernel.gridDim = dim3(kCount / 256);
  kernel.blockDim = dim3(256);
  kernel.kernelParams = arguments;
  OK(cudaGraphAddKernelNode(&add, graph, &clear, 1, &kernel));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, main_stream));
  OK(cudaStreamSynchronize(main_stream));
  OK(cudaMemcpy(out.data(), data, 4, cudaMemcpyDeviceToHost));
  CHECK(out[0] == 4);
  by = 8;
  OK(cudaGraphKernelNodeSetParams(add, &kernel));
  cudaGraphExecUpdateResultInfo info;
  OK(cudaGraphExecUpdate(exec, graph, &info));
  OK(cudaGraphLaunch(exec, main_stream));
  OK(cudaStreamSynchronize(main_stream));
  OK(cudaMemcpy(out.data(), data, 4, cudaMemcpyDeviceToHost));
  CHECK(out[0] == 8);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaEventDestroy(fork));
  OK(cudaEventDestroy(join));
  OK(cudaStreamDestroy(main_stream));
  OK(cudaStreamDestroy(side));
  OK(cudaFree(data));
}

void CheckThreads() {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &right] {
      int *device = nullptr, host[256] = {};
      if (cudaMalloc(&device, sizeof host) != cudaSuccess) return;
      cudaMemset(device, 0, sizeof host);
      for (int i = 0; i < 10; ++i) Increment<<<1, 256>>>(device, 256, t + 1);
      cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
      cudaFree(device);
      if (host[0] == 10 * (t + 1) && host[255] == 10 * (t + 1)) ++right;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 4);
}

void CheckEnd() {
  OK(cudaDeviceSynchronize());
  OK(cudaDeviceReset());
  void* memory = nullptr;
  OK(cudaMalloc(&memory, 1 << 20));
  OK(cudaFree(memory));
}

}  // namespace

int main() {
  CheckDevice();
  CheckCopies();
  CheckSymbols();
  CheckLaunches();
  CheckStreams();
  CheckPools();
  CheckGraphs();
  CheckThreads();
  CheckEnd();
  std::printf("{\"checks\":%d,\"fails\":%d,\"digest\":\"%016llx\"}\n", checks, fails.load(),
              static_cast<unsigned long long>(digest));
  return fails == 0 ? 0 : 1;
}
