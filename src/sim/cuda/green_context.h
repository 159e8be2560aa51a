// Green contexts: a part of a card's multiprocessors. Only their bookkeeping is modelled; their
// work shares the card's engines as everybody's does.
#pragma once

#include <cstdint>

#include "sim/cuda/context.h"

namespace tessera::sim {

struct GreenContext {
  static constexpr HandleKind kKind = HandleKind::kGreenContext;
  using Handle = CUgreenCtx;
  CUgreenCtx handle{};
  std::uint64_t id = 0;
  Context* context = nullptr;
  unsigned sm_count = 0;
};

}  // namespace tessera::sim
