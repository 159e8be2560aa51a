// Device memory that other processes open: IPC handles and the pointers of shared pools.
//
// Thread safety: functions are called with MemoryLock held.
#pragma once

#include "sim/cuda/memory.h"

namespace tessera::sim {

// Makes the pages of a private range those of a file (once), so that others can map them. The
// file's descriptor, -1 on failure.
int ShareRange(Range& range);
// The range is about to go: closes its file, if it has one.
void ForgetExport(Range& range);

// Maps `bytes` of another process' file at a new range. Opens /proc/PID/fd/FD, so both must be the
// same user's and see each other's pids. Nothing is charged: the owner pays.
CUresult MapForeign(Context& context, RangeKind kind, int pid, std::uint64_t start_ticks,
                    int descriptor, std::uint64_t bytes, int card, Range** made);

// Start time of a process in clock ticks since boot, 0 when there is none: tells a pid from a later
// one of the same number.
std::uint64_t StartTicks(int pid);

}  // namespace tessera::sim
