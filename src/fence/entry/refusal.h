// A slice that is meant for this process and cannot be used: unreadable, of a future layout, or a
// malformed HAMi variable. Then nothing is granted, never everything.
#pragma once

namespace tessera::fence {

// True if so; the first call says why on stderr: the variable or file, its value, what is legal.
bool SliceRefused();

}  // namespace tessera::fence
