#include "memory/live.h"

namespace tessera::fence {
namespace {

AllocTable g_live;
AllocTable g_handles;

void ResetTables() {
  // The parent's memory is the parent's to give back.
  g_live.Reset();
  g_handles.Reset();
}

}  // namespace

AllocTable& LiveTable() { return g_live; }
AllocTable& HandleTable() { return g_handles; }

void ForgetTablesOnFork() { ResetOnFork(ResetTables); }

CUresult Refuse(int card, std::uint64_t bytes) {
  CountDenial(card, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace tessera::fence
