#include "compute/gate.h"

namespace {
constexpr std::uint32_t kOpen = 0;
}

extern "C" {
[[gnu::visibility("hidden")]] const std::uint32_t* tessera_gate_word = &kOpen;
[[gnu::visibility("hidden")]] void tessera_wait_at_gate() {}
}
