// Ordinary programs whose memory figures are awkward to follow. None of them goes round anything.
//
//   honest KIND SECONDS   does so for SECONDS, then prints "done"
#include <pthread.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "calls.h"

using namespace tessera::hostile;

namespace {

using Clock = std::chrono::steady_clock;
Clock::time_point g_end;
const char* g_self;

bool Going() { return Clock::now() < g_end; }

constexpr char kModule[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 16 .b8 tessera_global[300000];
.visible .entry tessera_kernel(.param .u64 tessera_kernel_param_0)
{
  ret;
}
)";

CUdeviceptr Take(std::size_t bytes) {
  CUdeviceptr address = 0;
  Must(cuMemAlloc(&address, bytes), "cuMemAlloc");
  return address;
}

// Eight threads that take and give back what they like.
void Threads() {
  CUcontext context = OpenCard();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([context, i] {
      Must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
      while (Going()) {
        const CUdeviceptr address = Take(static_cast<std::size_t>(10 * (i + 1)) * kMiB);
        std::this_thread::sleep_for(std::chrono::milliseconds(3 + i));
        Must(cuMemFree(address), "cuMemFree");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Children made before the driver is used, each with a context of its own; as data loaders and
// servers do.
void Fork() {
  for (int i = 0; i < 3; ++i) {
    if (fork() != 0) continue;
    OpenCard();
    Take(300 * kMiB);
    while (Going()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    _exit(0);
  }
  while (wait(nullptr) > 0) {
  }
}

// A program that holds memory and becomes another program that holds some.
void Exec() {
  OpenCard();
  Take(700 * kMiB);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(g_end - Clock::now()).count();
  if (left > 0) execl(g_self, g_self, "exec", std::to_string(left).c_str(), nullptr);
}

// Several contexts, and a device heap and stacks of hundreds of MiB, which nobody asked for by an
// allocation.
void Contexts() {
  Must(cuInit(0), "cuInit");
  CUcontext contexts[3];
  for (CUcontext& context : contexts) {
    CUctxCreateParams none{};
    Must(cuCtxCreate(&context, &none, 0, 0), "cuCtxCreate");
    Must(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 256 * kMiB), "cuCtxSetLimit");
  }
  while (Going()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

// Hundreds of modules that are each smaller than what the driver hands out at once.
void Modules() {
  OpenCard();
  std::vector<CUmodule> modules;
  while (Going()) {
    for (int i = 0; i < 200; ++i) {
      CUmodule module = nullptr;
      Must(cuModuleLoadData(&module, kModule), "cuModuleLoadData");
      modules.push_back(module);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (CUmodule module : modules) Must(cuModuleUnload(module), "cuModuleUnload");
    modules.clear();
  }
}

// One process after the other, none older than some tenths of a second.
void ShortLived() {
  while (Going()) {
    const pid_t child = fork();
    if (child == 0) {
      OpenCard();
      Take(500 * kMiB);
      std::this_thread::sleep_for(std::chrono::milliseconds(120));
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }
}

// Memory pools, which keep what was given back.
void Pools() {
  OpenCard();
  while (Going()) {
    CUdeviceptr address = 0;
    Must(cuMemAllocAsync(&address, 400 * kMiB, nullptr), "cuMemAllocAsync");
    Must(cuMemFreeAsync(address, nullptr), "cuMemFreeAsync");
    Must(cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// One that goes on in a thread when its first one has ended.
void Headless() {
  std::thread([] {
    OpenCard();
    Take(400 * kMiB);
    while (Going()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Say("done");
    std::exit(0);
  }).detach();
  pthread_exit(nullptr);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  g_self = words[0];
  g_end = Clock::now() + std::chrono::seconds(std::atoi(words[2]));
  const struct {
    const char* name;
    void (*run)();
  } kinds[] = {{"threads", Threads},   {"fork", Fork},        {"exec", Exec},
               {"contexts", Contexts}, {"modules", Modules},  {"short", ShortLived},
               {"pools", Pools},       {"headless", Headless}};
  for (const auto& kind : kinds) {
    if (std::strcmp(kind.name, words[1]) != 0) continue;
    kind.run();
    Say("done");
    return 0;
  }
  return 2;
}
