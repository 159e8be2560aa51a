// The primary context of a device where a call makes it by the way: green contexts, managed
// variables of libraries.
//
// Thread safety: every function from any thread.
#pragma once

#include "real.h"

namespace tessera::fence {

// Holds the primary context, charged as by cuDevicePrimaryCtxRetain, for the length of a call that
// would make it uncharged. Afterwards it lives on if the call has kept it.
class PrimaryHeld {
 public:
  explicit PrimaryHeld(CUdevice device);
  ~PrimaryHeld();
  PrimaryHeld(const PrimaryHeld&) = delete;
  PrimaryHeld& operator=(const PrimaryHeld&) = delete;
  // Anything but success: the call must not go on.
  CUresult result() const { return result_; }

 private:
  CUdevice device_;
  CUresult result_;
};

// Around a call that may give back the last reference to the primary context of the device.
CUresult WithPrimaryEnd(CUdevice device, CUresult (*call)(const void* of), const void* of);
template <typename Call>
CUresult MayEndPrimary(CUdevice device, const Call& call) {
  return WithPrimaryEnd(
      device, [](const void* of) { return (*static_cast<const Call*>(of))(); }, &call);
}

}  // namespace tessera::fence
