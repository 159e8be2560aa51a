// One row of the coverage table: an entry point that takes or gives back card memory, reached by
// one route.
//
// A row holds when, behind a limit, (1) what exceeds it is refused with the documented code and
// neither the ledger nor the driver's own figure moves, (2) what fits is granted and the ledger
// grows by exactly the bytes that the driver took, and (3) both are back where they were after the
// release.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/integration/support/driver.h"

namespace tessera::testing {

// Everything a scenario may use. One per process: each row runs in a process of its own.
struct Bench {
  CUcontext context = nullptr;
  CUstream stream = nullptr;    // the stream that stream-ordered calls use
  CUmemoryPool pool = nullptr;  // created on first use by OwnPool()
  std::uint64_t limit = 0;      // bytes

  CUmemoryPool OwnPool();
  // Takes card memory until less than `leave_bytes` of the limit is left.
  void FillLeaving(std::uint64_t leave_bytes);
  void EmptyFill();

 private:
  std::vector<CUdeviceptr> fill_;
};

// What one row does with the function under test.
struct Steps {
  // Asks for more than the limit leaves; the code that the caller got.
  std::function<CUresult()> exceed;
  CUresult refused_with = CUDA_ERROR_OUT_OF_MEMORY;
  std::function<CUresult()> take;
  std::function<CUresult()> release;
  // Bytes that stay with the driver by design after the first use (a pool's first chunk): none
  // unless said.
  bool charges_nothing = false;  // an import of memory that another fence has charged
};

using Scenario = std::function<Steps(Bench& bench, void* function)>;

struct Entry {
  std::string symbol;  // as exported, "cuMemAllocAsync_ptsz"
  Scenario scenario;
};

// A hooked name without a row of its own, and which test shows it instead.
struct Excuse {
  const char* symbol;
  const char* reason;
};
const std::vector<Excuse>& Excuses();

// Every entry with its scenario; filled by the files linear.cc, stream_ordered.cc, ...
const std::vector<Entry>& Entries();

using Registrar = void (*)(std::vector<Entry>& entries);
void RegisterLinear(std::vector<Entry>& entries);
void RegisterStreamOrdered(std::vector<Entry>& entries);
void RegisterVirtualMemory(std::vector<Entry>& entries);
void RegisterArrays(std::vector<Entry>& entries);
void RegisterGraphs(std::vector<Entry>& entries);
void RegisterImports(std::vector<Entry>& entries);
void RegisterContexts(std::vector<Entry>& entries);
void RegisterModules(std::vector<Entry>& entries);

// `coverage --own BYTES`: allocates, writes the IPC handle to stdout, and keeps the memory until
// stdin ends.
int OwnForOthers(std::uint64_t bytes);

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kPiece = 64 * kMiB;  // what a row takes when it may choose

// Casts the function under test to the type of NAME: AS(cuMemAlloc_v2, function)(...).
#define AS(name, function) (*reinterpret_cast<decltype(::name)*>(function))

}  // namespace tessera::testing
