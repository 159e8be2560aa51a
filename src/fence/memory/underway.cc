#include "memory/underway.h"

namespace tessera::fence {

constinit detail::UnderwayLine detail::g_underway[detail::kUnderwayLines] = {};

void ForgetUnderway() {
  for (detail::UnderwayLine& line : detail::g_underway) line = {};
}

}  // namespace tessera::fence
