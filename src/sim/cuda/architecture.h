// What follows from a card's compute capability.
// Source: CUDA C++ Programming Guide 13.0, table "Technical Specifications per Compute Capability".
#pragma once

#include "sim/state/node_state.h"

namespace tessera::sim {

struct Architecture {
  int threads_per_sm;
  int blocks_per_sm;
  int shared_per_sm;     // bytes
  int shared_per_block;  // opt-in maximum, bytes
  int single_double_ratio;
  bool clusters;  // thread block clusters, tensor maps
};

const Architecture& ArchitectureOf(const CardSpec& spec);

// Value of a CUdevice_attribute on this card; 0 for attributes that this driver does not know.
int AttributeOf(const CardSpec& spec, int attribute);

}  // namespace tessera::sim
