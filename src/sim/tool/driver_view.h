// A mount namespace in which this machine has the simulated driver.
//
// Afterwards, for this process and what it starts: libcuda.so.1, libcuda.so and libnvidia-ml.so.1
// are found by the ordinary search (so `env -i` changes nothing), the node is at kDefaultNodePath,
// and /dev has the files by which programs notice a card. Works as root and, with a user namespace
// in which it keeps its uid and loses every capability, as anybody else.
//
// Thread safety: single-threaded processes only.
#pragma once

#include <string>

#include "base/result.h"

namespace tessera::sim {

struct DriverView {
  std::string libraries;  // folder with the built driver libraries
  std::string node;       // node file
  int cards = 1;
  bool trial = false;  // only to see whether it can be done: no cache of libraries is made
};

// All or an error; after an error this process is in a namespace half made and should end (try it
// in a child first).
Status EnterDriverView(const DriverView& view);

}  // namespace tessera::sim
