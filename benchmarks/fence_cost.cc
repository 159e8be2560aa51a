// Measures in this process, with whatever driver and fence it finds, what one call costs. Run bare
// and fenced in turn by benchmarks/fence.py, which takes the differences.
//
//   fence_cost calls            "NAME nanoseconds" a line: median over 41 chunks of this thread's
//                               CPU time per call
//   fence_cost init             microseconds of the first cuInit + context + allocation; memory and
//                               threads after it
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dirent.h>
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int kChunks = 41;

std::uint64_t CpuNs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t WallNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// `chunk(n)` makes n calls; the median over chunks of CPU time per call.
template <typename Chunk>
void Report(const std::string& name, int calls, Chunk chunk) {
  chunk(calls / 4 + 1);
  std::vector<double> each;
  for (int i = 0; i < kChunks; ++i) {
    std::uint64_t begin = CpuNs();
    chunk(calls);
    each.push_back(static_cast<double>(CpuNs() - begin) / calls);
  }
  std::nth_element(each.begin(), each.begin() + kChunks / 2, each.end());
  std::printf("%s %.3f\n", name.c_str(), each[kChunks / 2]);
}

void* driver = nullptr;

void* BySymbol(const char* symbol) { return ::dlsym(driver, symbol); }
void* ByProcAddress(const char* base) {
  static auto* get =
      reinterpret_cast<decltype(cuGetProcAddress_v2)*>(BySymbol("cuGetProcAddress_v2"));
  void* found = nullptr;
  get(base, &found, 13000, 0, nullptr);
  return found;
}

template <typename Function>
void ReportLaunches(const char* route, Function* find) {
  auto* launch = reinterpret_cast<decltype(cuLaunchKernel)*>(find("cuLaunchKernel"));
  auto* launch_ex = reinterpret_cast<decltype(cuLaunchKernelEx)*>(find("cuLaunchKernelEx"));
  auto* cooperative =
      reinterpret_cast<decltype(cuLaunchCooperativeKernel)*>(find("cuLaunchCooperativeKernel"));
  auto* graph = reinterpret_cast<decltype(cuGraphLaunch)*>(find("cuGraphLaunch"));
  const std::string by = std::string(route) + " ";
  Report("launch/cuLaunchKernel " + by, 20000, [=](int n) {
    for (int i = 0; i < n; ++i) launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  });
  CUlaunchConfig config{};
  Report("launch/cuLaunchKernelEx " + by, 20000, [=, &config](int n) {
    for (int i = 0; i < n; ++i) launch_ex(&config, nullptr, nullptr, nullptr);
  });
  Report("launch/cuLaunchCooperativeKernel " + by, 20000, [=](int n) {
    for (int i = 0; i < n; ++i) cooperative(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr);
  });
  Report("launch/cuGraphLaunch " + by, 20000, [=](int n) {
    for (int i = 0; i < n; ++i) graph(nullptr, nullptr);
  });
}

enum class Order { kNewest, kRandom, kOldest };

// One allocation and one free with `live` others held; which one is freed follows `order`.
void ReportAllocations(std::size_t bytes, std::size_t live, Order order, const char* order_name) {
  std::vector<CUdeviceptr> held(live);
  for (auto& pointer : held) cuMemAlloc_v2(&pointer, bytes);
  std::mt19937 random(7);
  std::size_t oldest = 0;
  std::vector<std::uint32_t> picks(4096);
  for (auto& pick : picks) pick = live > 0 ? static_cast<std::uint32_t>(random() % live) : 0;
  std::string name = "alloc/" + std::to_string(bytes >> 10) + "KiB live=" + std::to_string(live) +
                     " " + order_name;
  Report(name, 4000, [&](int n) {
    for (int i = 0; i < n; ++i) {
      CUdeviceptr pointer = 0;
      cuMemAlloc_v2(&pointer, bytes);
      std::size_t at = 0;
      if (live == 0 || order == Order::kNewest) {
        cuMemFree_v2(pointer);
        continue;
      }
      if (order == Order::kRandom) {
        at = picks[static_cast<std::size_t>(i) % picks.size()];
      } else {
        at = oldest;
        oldest = oldest + 1 == live ? 0 : oldest + 1;
      }
      cuMemFree_v2(held[at]);
      held[at] = pointer;
    }
  });
  for (CUdeviceptr pointer : held) cuMemFree_v2(pointer);
}

int Calls() {
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS) return 1;
  ReportLaunches(
      "linked", +[](const char* name) -> void* {
        if (std::strcmp(name, "cuLaunchKernel") == 0)
          return reinterpret_cast<void*>(&cuLaunchKernel);
        if (std::strcmp(name, "cuLaunchKernelEx") == 0)
          return reinterpret_cast<void*>(&cuLaunchKernelEx);
        if (std::strcmp(name, "cuGraphLaunch") == 0) return reinterpret_cast<void*>(&cuGraphLaunch);
        return reinterpret_cast<void*>(&cuLaunchCooperativeKernel);
      });
  ReportLaunches("dlsym", BySymbol);
  ReportLaunches("cuGetProcAddress", ByProcAddress);
  for (std::size_t bytes : {std::size_t{4096}, std::size_t{2} << 20}) {
    ReportAllocations(bytes, 0, Order::kNewest, "newest");
    for (std::size_t live : {1000, 50000}) {
      ReportAllocations(bytes, live, Order::kNewest, "newest");
      ReportAllocations(bytes, live, Order::kRandom, "random");
      ReportAllocations(bytes, live, Order::kOldest, "oldest");
    }
  }
  Report("query/cuMemGetInfo", 10000, [](int n) {
    std::size_t free = 0, total = 0;
    for (int i = 0; i < n; ++i) cuMemGetInfo_v2(&free, &total);
  });
  auto* get = reinterpret_cast<decltype(cuGetProcAddress_v2)*>(BySymbol("cuGetProcAddress_v2"));
  for (const char* name : {"cuLaunchKernel", "cuMemAlloc", "cuGraphLaunch", "cuStreamQuery"}) {
    Report(std::string("query/cuGetProcAddress ") + name, 4000, [=](int n) {
      void* found = nullptr;
      CUdriverProcAddressQueryResult status{};
      for (int i = 0; i < n; ++i) get(name, &found, 13000, 0, &status);
    });
  }
  return 0;
}

long Threads() {
  long count = 0;
  if (DIR* tasks = ::opendir("/proc/self/task")) {
    while (dirent* entry = ::readdir(tasks)) count += entry->d_name[0] != '.';
    ::closedir(tasks);
  }
  return count;
}

long PrivateKiB() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  long sum = 0, value = 0;
  while (rollup >> word) {
    if ((word == "Private_Clean:" || word == "Private_Dirty:") && rollup >> value) sum += value;
  }
  return sum;
}

int Init() {
  std::uint64_t begin = WallNs();
  CUresult result = cuInit(0);
  std::uint64_t initialised = WallNs();
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  if (result == CUDA_SUCCESS) result = cuCtxCreate_v2(&context, 0, 0);
  if (result == CUDA_SUCCESS) result = cuMemAlloc_v2(&pointer, 4096);
  if (result != CUDA_SUCCESS) return 1;
  std::printf("cuInit_us %.1f\nthreads %ld\nprivate_kib %ld\n",
              static_cast<double>(initialised - begin) / 1e3, Threads(), PrivateKiB());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    std::fprintf(stderr, "fence_cost: %s\n", ::dlerror());
    return 1;
  }
  if (argc == 2 && std::strcmp(argv[1], "calls") == 0) return Calls();
  if (argc == 2 && std::strcmp(argv[1], "init") == 0) return Init();
  std::fprintf(stderr, "usage: fence_cost calls | init\n");
  return 2;
}
