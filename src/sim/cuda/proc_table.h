// The generated map behind cuGetProcAddress.
#pragma once

namespace tessera::sim {

struct ProcVersion {
  int version;  // CUDA version in which this ABI appeared
  bool per_thread;
  void* entry;
};

struct ProcName {
  const char* name;
  int first, count;  // into kProcVersions; sorted by version
};

inline constexpr int kProcSlotCount = 2048;
extern const ProcVersion kProcVersions[];
extern const ProcName kProcNames[];
extern const int kProcNameCount;
extern const short kProcSlots[kProcSlotCount];  // open addressing over 32-bit FNV-1a, -1 empty

}  // namespace tessera::sim
