// Every entry point of the driver, called with nothing but zeros: what comes back is a documented
// error (or success, where zeros mean something), and nothing crashes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "sim/cuda/testing/driver.h"

namespace tessera::sim {
namespace {

// More than any entry point has; the caller cleans up, so too many do no harm.
using Zeros = CUresult (*)(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                           std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                           std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                           std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                           std::uint64_t, std::uint64_t);

CUresult CallWithZeros(const char* name) {
  return reinterpret_cast<Zeros>(DriverFunction(name))(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                       0, 0, 0);
}

std::vector<std::string> EntryPoints() {
  std::vector<std::string> names;
  std::ifstream list(SIMCUDA_EXPORTS);
  for (std::string name; list >> name;) names.push_back(name);
  return names;
}

const char* calling = "";
void SayWhich(int) {
  const char text[] = " crashed\n";
  if (write(2, calling, std::strlen(calling)) < 0 || write(2, text, sizeof text - 1) < 0) _exit(4);
  _exit(3);
}

bool Is(const std::string& name, const std::set<std::string>& names) { return names.count(name); }

// Those that say something without cuInit, or do it.
bool NeedsNoInit(const std::string& name) {
  return Is(name, {"cuInit", "cuGetErrorName", "cuGetErrorString", "cuDriverGetVersion",
                   "cuGetProcAddress", "cuGetProcAddress_v2", "cuGetExportTable"});
}

int BeforeInit(const std::string&) {
  signal(SIGSEGV, SayWhich);
  int wrong = 0;
  for (const std::string& name : EntryPoints()) {
    if (name == "cuInit") continue;
    calling = name.c_str();
    const CUresult result = CallWithZeros(calling);
    const CUresult wanted =
        NeedsNoInit(name) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
    if (result == wanted) continue;
    std::fprintf(stderr, "%s before cuInit: %d, wanted %d\n", calling, result, wanted);
    wrong = 1;
  }
  return wrong;
}
const AddChild before_init("every-entry-before-init", BeforeInit);

TEST(EveryEntryPoint, IsRefusedBeforeInit) { EXPECT_EQ(RunAgain("every-entry-before-init"), 0); }

int InAContext(const std::string&) {
  signal(SIGSEGV, SayWhich);
  CUcontext context{};
  if (CU(cuInit)(0) || CU(cuCtxCreate_v2)(&context, 0, 0)) return 2;
  int wrong = 0, called = 0;
  for (const std::string& name : EntryPoints()) {
    calling = name.c_str();
    CU(cuCtxSetCurrent)(context);
    const CUresult result = CallWithZeros(calling);
    const char* text = nullptr;
    ++called;
    if (CU(cuGetErrorName)(result, &text) == CUDA_SUCCESS && result != CUDA_ERROR_UNKNOWN &&
        result != CUDA_ERROR_NOT_INITIALIZED && result != CUDA_ERROR_CONTEXT_IS_DESTROYED)
      continue;
    std::fprintf(stderr, "%s with zeros: %d\n", calling, result);
    wrong = 1;
  }
  calling = "the end";
  CU(cuCtxSetCurrent)(context);
  // Zeros begin a capture on the thread's stream, in the per-thread form.
  CUgraph graph{};
  CU(cuStreamEndCapture)(CU_STREAM_PER_THREAD, &graph);
  CUdeviceptr pointer = 0;
  const CUresult ends[] = {CU(cuCtxSynchronize)(), CU(cuMemAlloc_v2)(&pointer, 1),
                           CU(cuMemFree_v2)(pointer), CU(cuCtxDestroy_v2)(context)};
  for (const CUresult end : ends) {
    if (end == CUDA_SUCCESS) continue;
    std::fprintf(stderr, "the context does not work any more: %d\n", end);
    wrong = 1;
  }
  return called > 600 ? wrong : 5;
}
const AddChild in_a_context("every-entry-in-a-context", InAContext);

TEST(EveryEntryPoint, TakesZerosWithoutHarm) { EXPECT_EQ(RunAgain("every-entry-in-a-context"), 0); }

int InAChild(const std::string&) {
  if (CU(cuInit)(0)) return 2;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SayWhich);
    for (const std::string& name : EntryPoints()) {
      calling = name.c_str();
      const CUresult result = CallWithZeros(calling);
      if (NeedsNoInit(name) && name != "cuInit") continue;
      if (result != CUDA_ERROR_NOT_INITIALIZED) {
        std::fprintf(stderr, "%s in a child: %d\n", calling, result);
        _exit(1);
      }
    }
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  return status;
}
const AddChild in_a_child("every-entry-in-a-child", InAChild);

TEST(EveryEntryPoint, IsRefusedInAForkedChild) { EXPECT_EQ(RunAgain("every-entry-in-a-child"), 0); }

}  // namespace
}  // namespace tessera::sim
