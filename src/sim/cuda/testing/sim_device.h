// A simulated node of two cards for tests that call the driver in their own process, and a little
// PTX to launch.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "sim/cuda/cuda_abi.h"
#include "sim/state/testing/children.h"

namespace tessera::sim::testing {

// Kernels `empty`, `k100us`, `k1ms`, `k5ms` (named by how long they last), `add(int* out, int
// value)` with a host stand-in that adds value to *out, `scale(int* out, int factor)` that
// multiplies; variable `table` {1,2,3,4} of 64 ints.
extern const char kTestPtx[];

// The node of this process; made at the first call, with kernel durations and cuInit done.
TestNode& Node();

// Each test gets a fresh primary context of card 0, current, and the test module in it.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  CUfunction Kernel(const char* name);
  void Launch(const char* name, CUstream stream);
  // add or scale on a device word.
  void Launch(const char* name, CUdeviceptr word, int value, CUstream stream);
  CUdeviceptr Word(int value = 0);  // four bytes of card memory
  int Read(CUdeviceptr word);
  void Poke(CUdeviceptr word, int value);  // written by the host, seen by streams that wait for it

  CUcontext context_{};
  CUmodule module_{};
};

#define OK(call) ASSERT_EQ(CUDA_SUCCESS, call)

}  // namespace tessera::sim::testing
