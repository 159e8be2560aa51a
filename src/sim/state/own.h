// What the files of this folder share and nobody else needs.
#pragma once

#include "sim/state/node_state.h"

namespace tessera::sim {

inline constexpr std::uint64_t kTakingOut = std::uint64_t{1} << 63;
inline constexpr int kPidBits = 22;  // PID_MAX_LIMIT of Linux is 2^22
inline constexpr std::uint64_t kPidMask = (std::uint64_t{1} << kPidBits) - 1;

// A card's `used`: blocks << 40 | version.
inline constexpr int kUsedShift = 40;
inline constexpr std::uint64_t kVersionMask = (std::uint64_t{1} << kUsedShift) - 1;
inline constexpr std::uint64_t kUnderWayMask = 0xffff;

std::uint64_t UsedWord(std::uint64_t bytes, std::uint64_t last_word);
inline std::uint64_t UsedOf(std::uint64_t word) { return (word >> kUsedShift) * kBlockBytes; }

// Adds (never refused) or takes away bytes from the card's sum.
void SubtractUsed(CardState& card, std::uint64_t bytes);

// Makes the sum what the slots say, if nobody is in the middle of a change; else leaves
// recount_wanted set.
void Recount(NodeState& node, int card);

// Sweep that looks at zombies, reused pids and exec too, and at other pid namespaces if this
// process can see them.
void SweepThoroughly(NodeState& node);

// Fills `buffer` with this process' cgroup path: the unified one, else the memory controller's.
void ReadOwnCgroup(char* buffer, std::size_t size);

// True when `path` is `cgroup` or below it.
bool InCgroup(std::string_view path, std::string_view cgroup);

// True when a limit of a cgroup that holds `slot` is exceeded by what its processes hold on the
// card now.
bool OverMemoryLimit(NodeState& node, int card, int slot);

// True when what the processes on the MIG device of `slot` hold now is more than it has.
bool OverMigDevice(const NodeState& node, int card, int slot);

// A text read from shared memory that may be torn or unterminated.
std::string_view Text(const char* text, std::size_t size);

// Reads a small file of /proc whole; -1 when it can't.
int ReadSmallFile(const char* path, char* buffer, int size);

}  // namespace tessera::sim
