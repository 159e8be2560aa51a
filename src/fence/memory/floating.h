// Memory that is charged in full, but stands in the driver's figure for this process only as far as
// it is on the card at that moment: managed memory, pools of it, imported memory. Any part of it
// may be there, and a kernel moves it at any time, so that the driver's figure alone does not tell
// what the rest takes.
//
// What is certain (the figure is lower than the rest is charged, or higher than everything is) is
// put right always. In between the figure is compared with the one of the last look, but believed
// only as far as something was charged by estimate since then: the doubt. Whatever moves, the books
// are never lowered or raised by more.
//
// Thread safety: every function from any thread.
#pragma once

#include <cstdint>

namespace tessera::fence {

// What this process is charged of it on the card.
std::uint64_t FloatingBytes(int card);
inline bool AnyFloating(int card) { return card >= 0 && FloatingBytes(card) != 0; }

// Something was charged or given back by estimate: the books may be off by so much more.
void NoteDoubt(int card, std::uint64_t bytes);
bool AnyDoubt(int card);

// What the books lack (negative: have too many) for what does not float.
struct Off {
  std::int64_t bytes = 0;
  bool said = true;      // the driver gives a figure
  bool between = false;  // there is floating memory
};
// `charged`: everything on the card, floating memory of `floating` bytes included. `grown`: how
// much of a growth since the last look is believed, beyond the doubt.
Off CompareWithFigure(int card, std::uint64_t driver, std::uint64_t charged, std::uint64_t floating,
                      std::uint64_t grown);
// The books have been corrected by what was compared: from now on what of the figure is more than
// the rest is charged is floating memory.
void RememberFigure(int card, std::uint64_t driver, std::uint64_t charged, std::uint64_t floating);

void ForgetFloating();  // in a forked child

}  // namespace tessera::fence
