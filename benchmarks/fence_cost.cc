// Measures in this process, with whatever driver and fence it finds, what one call costs. Run bare
// and fenced in turn by benchmarks/fence.py, which takes the differences. Modes, each printing
// "NAME figure" lines:
//
//   calls    ns of this thread's CPU time per call, median over 41 chunks of calls
//   init     us of CPU time of the first cuInit, before a context and an allocation
//   memory   KiB at 0, 1,000, 50,000 live: private, of which written; shared; threads at the end
//   limit    us from the store of a new limit to the call that shows it (fenced only)
//   hold     a process with a context, until its standard input ends
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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

#include "contract/slice_layout.h"

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

// One allocation and one free with `live` others held; which one is freed follows `order`. The
// program's own list of pointers is fetched ahead: what it costs to read is no cost of the fence.
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
        __builtin_prefetch(&held[picks[(static_cast<std::size_t>(i) + 8) % picks.size()]], 1);
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

struct Kib {
  long written = 0;  // private and dirty
  long clean = 0;    // private: pages of files that no other process has mapped
  long shared = 0;
};

Kib Memory() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  Kib kib;
  long value = 0;
  while (rollup >> word) {
    if (word == "Private_Dirty:" && rollup >> value) kib.written += value;
    if (word == "Private_Clean:" && rollup >> value) kib.clean += value;
    if ((word == "Shared_Clean:" || word == "Shared_Dirty:") && rollup >> value) {
      kib.shared += value;
    }
  }
  return kib;
}

bool MakeContext() {
  CUcontext context = nullptr;
  return cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS;
}

int Init() {
  const std::uint64_t begin = CpuNs();
  const CUresult result = cuInit(0);
  const std::uint64_t initialised = CpuNs();
  CUdeviceptr pointer = 0;
  if (result != CUDA_SUCCESS || !MakeContext() || cuMemAlloc_v2(&pointer, 4096) != CUDA_SUCCESS) {
    return 1;
  }
  std::printf("cuInit_us %.1f\n", static_cast<double>(initialised - begin) / 1e3);
  return 0;
}

int MemoryAtLive() {
  constexpr std::size_t kMost = 50000;
  std::vector<CUdeviceptr> held(kMost);  // touched: its pages are there from the start
  CUdeviceptr first = 0;
  if (!MakeContext() || cuMemAlloc_v2(&first, 4096) != CUDA_SUCCESS) return 1;
  Memory();
  std::size_t live = 0;
  for (const std::size_t wanted : {std::size_t{0}, std::size_t{1000}, kMost}) {
    for (; live < wanted; ++live) {
      if (cuMemAlloc_v2(&held[live], 4096) != CUDA_SUCCESS) return 1;
    }
    const Kib kib = Memory();
    std::printf("live=%zu written %ld\nlive=%zu private %ld\nlive=%zu shared %ld\n", wanted,
                kib.written, wanted, kib.written + kib.clean, wanted, kib.shared);
  }
  std::printf("threads %ld\n", Threads());
  return 0;
}

int Limit() {
  const std::string path = std::string(std::getenv("TESSERA_SLICE_DIR")) + "/policy";
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* map = ::mmap(nullptr, sizeof(tessera::contract::PolicyFile), PROT_READ | PROT_WRITE,
                     MAP_SHARED, file, 0);
  if (file < 0 || map == MAP_FAILED || !MakeContext()) return 1;
  auto& limit = static_cast<tessera::contract::PolicyFile*>(map)->cards[0].limit_bytes;
  const std::uint64_t was = limit;
  std::vector<double> each;
  for (std::uint64_t i = 0; i < 1001; ++i) {
    const std::uint64_t wanted = was - (i % 2 + 1) * (std::uint64_t{64} << 20);
    const std::uint64_t begin = WallNs();
    __atomic_store_n(&limit, wanted, __ATOMIC_SEQ_CST);
    std::size_t free = 0, total = 0;
    while (total != wanted) cuMemGetInfo_v2(&free, &total);
    each.push_back(static_cast<double>(WallNs() - begin));
  }
  __atomic_store_n(&limit, was, __ATOMIC_SEQ_CST);
  std::nth_element(each.begin(), each.begin() + 500, each.end());
  std::printf("limit_us %.3f\n", each[500] / 1e3);
  return 0;
}

int Hold() {
  CUdeviceptr pointer = 0;
  if (!MakeContext() || cuMemAlloc_v2(&pointer, 4096) != CUDA_SUCCESS) return 1;
  std::printf("ready 1\n");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    std::fprintf(stderr, "fence_cost: %s\n", ::dlerror());
    return 1;
  }
  constexpr struct {
    const char* name;
    int (*run)();
  } kModes[] = {
      {"calls", Calls}, {"init", Init}, {"memory", MemoryAtLive}, {"limit", Limit}, {"hold", Hold}};
  for (const auto& mode : kModes) {
    if (argc == 2 && std::strcmp(argv[1], mode.name) == 0) return mode.run();
  }
  std::fprintf(stderr, "usage: fence_cost calls | init | memory | limit | hold\n");
  return 2;
}
