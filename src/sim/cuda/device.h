// The cards that this process may see, in the order in which it sees them.
//
// Decided once, in cuInit, from CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; fixed from then on, so
// no locks.
#pragma once

#include <string_view>

#include "sim/cuda/cuda_abi.h"
#include "sim/state/node_state.h"

namespace tessera::sim {

struct Device {
  int ordinal;  // CUdevice
  int card;     // index in the node; what the functions of node_state.h take
  const CardSpec* spec;
  CardState* state;
};

int DeviceCount();
// nullptr for an ordinal that is not visible.
const Device* FindDevice(CUdevice ordinal);
// The visible device of a card of the node, nullptr if that card is hidden.
const Device* DeviceOfCard(int card);
// The node; set by cuInit.
NodeState* Node();

// Chooses the visible cards: card indices in CUDA order into `cards`, number returned. `visible` is
// CUDA_VISIBLE_DEVICES (nullptr when unset), `order` CUDA_DEVICE_ORDER. Rules (CUDA C++ Programming
// Guide, "CUDA Environment Variables"): indices or prefixes of `GPU-<uuid>`; the list ends at the
// first entry that is not a card; a card named twice makes the list empty.
int ChooseVisible(const NodeState& node, const char* visible, const char* order,
                  int (&cards)[kMaxCards]);

// cuInit's part: CUDA_SUCCESS, or NO_DEVICE when nothing is left.
CUresult InitDevices(NodeState& node);

}  // namespace tessera::sim
