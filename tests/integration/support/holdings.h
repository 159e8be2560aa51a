// A process' random life with card memory: takes and gives back by every kind of allocation there
// is.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/integration/support/driver.h"

namespace tessera::testing {

// Not thread-safe: one per thread. Every call leaves what it holds consistent, whatever the driver
// answers.
class Holdings {
 public:
  // `context` must be current in the calling thread.
  Holdings(CUcontext context, std::uint64_t seed);

  // One random step: take, give back, or ask. The driver's code; CUDA_ERROR_OUT_OF_MEMORY is an
  // ordinary answer.
  CUresult Step();

  // Gives everything back; the first code that was not CUDA_SUCCESS.
  CUresult DropAll();

  std::size_t count() const { return held_.size(); }

 private:
  enum class What {
    kLinear,
    kPitch,
    kManaged,
    kAsync,
    kFromPool,
    kVmm,
    kArray,
    kMipmap,
    kGraph,
    kModule,
    kContext
  };
  static constexpr int kWhats = 11;

  struct Held {
    What what;
    CUdeviceptr pointer = 0;
    std::uint64_t bytes = 0;
    void* handle = nullptr;  // array, mipmap, module, context, graph
    void* second = nullptr;  // graph exec
    CUmemGenericAllocationHandle chunk = 0;
  };

  CUresult Take(What what);
  CUresult TakeMapped(Held& held);
  CUresult TakeGraph(Held& held);
  CUresult TakeContext(Held& held);
  CUresult GiveBack(std::size_t index);
  std::uint64_t RandomBytes();

  CUcontext context_;
  CUstream stream_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  std::mt19937_64 random_;
  std::vector<Held> held_;
};

}  // namespace tessera::testing
