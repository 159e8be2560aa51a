// A simulated node of this test's own, and the built driver on it.
//
//   EXPECT_EQ(CU(cuMemAlloc_v2)(&pointer, 1), CUDA_SUCCESS);
//
// The node file is made (and the driver loaded) when the program starts; the file is removed at its
// end. Programs that need several processes start themselves again with RunAgain.
#pragma once

#include <string>
#include <vector>

#include "sim/cuda/cuda_abi.h"
#include "sim/state/node_state.h"

namespace tessera::sim {

// The driver's function of this name; ends the program if there is none.
void* DriverFunction(const char* name);

// The test's view of the node.
NodeState& TestNode();

// Bytes that all processes hold on a card, and this one.
std::uint64_t UsedOnCard(int card);
std::uint64_t HeldHere(int card);

// Runs this program again as `name` (a function given to AddChild) with an argument and extra
// environment ("NAME=value"); its exit status, 128 + signal when killed.
int RunAgain(const std::string& name, const std::string& argument = "",
             const std::vector<std::string>& environment = {});
struct AddChild {
  AddChild(const char* name, int (*function)(const std::string& argument));
};

// A context on a device for the length of a test.
class TestContext {
 public:
  explicit TestContext(CUdevice device = 0);
  ~TestContext();
  CUcontext handle{};
};

}  // namespace tessera::sim

#define CU(name) (reinterpret_cast<decltype(&::name)>(::tessera::sim::DriverFunction(#name)))
