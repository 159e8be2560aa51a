// What the driver says that this process holds on a card (NVML's list of compute processes): the
// one figure that no neighbour on the card can disturb.
//
// Thread safety: every function from any thread. Costs: the first answer opens NVML (some
// milliseconds on a real machine), each later one is one call of NVML.
#pragma once

#include <cstdint>

namespace tessera::fence {

// Whether to load NVML where the program has not.
enum class Nvml { kIfLoaded, kLoad };

// False when the driver does not say: no NVML, a pid namespace whose pids the driver does not know,
// or this process has never been seen in the driver's list (hidden, or without a context).
bool OwnDriverBytes(int card, Nvml how, std::uint64_t* bytes);

// True once NVML has been loaded, by the program or for a figure, and answers.
bool DriverFigureIsAtHand();

void ForgetDriverFigure();  // in a forked child

}  // namespace tessera::fence
