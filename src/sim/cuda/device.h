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
  const MigSpec* mig;  // the MIG device that it is, nullptr for a whole card; `spec` then has its
                       // name, memory and SMs
};

int DeviceCount();
// nullptr for an ordinal that is not visible.
const Device* FindDevice(CUdevice ordinal);
// The visible device of a card of the node, nullptr if that card is hidden.
const Device* DeviceOfCard(int card);
// The node; set by cuInit.
NodeState* Node();

// A card, or one of its MIG devices (-1: the whole card).
struct Choice {
  int card, mig;
};

// Chooses what is visible: in CUDA order into `chosen`, number returned. `visible` is
// CUDA_VISIBLE_DEVICES (nullptr when unset), `order` CUDA_DEVICE_ORDER. Rules (CUDA C++ Programming
// Guide, "CUDA Environment Variables"; MIG User Guide, "CUDA Device Enumeration"): indices, or
// prefixes of `GPU-<uuid>` and `MIG-<uuid>`, or `MIG-GPU-<uuid>/<GPU instance>/<compute instance>`;
// the list ends at the first entry that is none; one named twice makes the list empty. A card in
// MIG mode stands for its first MIG device. A program sees one MIG device and nothing beside it:
// when the list begins with one it ends there, else it ends before the first.
int ChooseVisible(const NodeState& node, const char* visible, const char* order,
                  Choice (&chosen)[kMaxCards]);

// cuInit's part: CUDA_SUCCESS, or NO_DEVICE when nothing is left.
CUresult InitDevices(NodeState& node);

}  // namespace tessera::sim
