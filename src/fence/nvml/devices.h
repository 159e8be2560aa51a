// Which NVML devices a slice has: the others do not exist for the program.
//
// Thread safety: every function from any thread; nothing is cached, because handles live only
// between nvmlInit and nvmlShutdown. Cost: a few calls of the real library a question.
#pragma once

#include <cstddef>
#include <span>

#include "contract/slice_layout.h"
#include "real.h"

namespace tessera::fence::nvml {

// True where the process has a slice, so that memory, processes and utilisation are the slice's.
bool Fenced();
// True where cards are hidden as well: the slice names its cards (a policy does, HAMi's variables
// do not).
bool HidesCards();

// The slice's card that a handle stands for, or kForeignCard. A MIG instance of a card of the slice
// counts as that card.
int CardOf(nvmlDevice_t device);
// True for a handle that the program may hold: every one where no cards are hidden.
bool IsVisible(nvmlDevice_t device);

struct DeviceList {
  nvmlReturn_t result = NVML_SUCCESS;
  unsigned count = 0;
  nvmlDevice_t devices[contract::kMaxCards] = {};
};
// The devices of the slice in its order, as nvmlDeviceGetHandleByIndex counts them. A MIG instance
// is counted as the card that it is part of, once. The real library's error if it is not
// initialised.
DeviceList VisibleDevices();

// Removes the handles that are not the slice's; the number that is left.
unsigned KeepVisible(std::span<nvmlDevice_t> devices);

}  // namespace tessera::fence::nvml
