#include "memory/live.h"

namespace tessera::fence {

namespace detail {
AllocTable g_live;
AllocTable g_handles;
}  // namespace detail

namespace {

void ResetTables() {
  // The parent's memory is the parent's to give back.
  LiveTable().Reset();
  HandleTable().Reset();
}

}  // namespace

void ForgetTablesOnFork() { ResetOnFork(ResetTables); }

CUresult Refuse(int card, std::uint64_t bytes) {
  CountDenial(card, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace tessera::fence
