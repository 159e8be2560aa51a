// What Tessera tells the person at the terminal, on stderr, one line a call, each in one write(2).
//
// Thread safety: all functions from any thread. Nothing is buffered, so a fork or exec loses
// nothing.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::base {

void SetVerbose(bool verbose);
bool Verbose();

// Always shown: "tessera: text".
void Say(std::string_view text);

// For a wait that may pass 2 s: "tessera: waiting for the driver, ..." once it has lasted kQuietNs,
// and only where somebody sits at stderr: a log or a pipe keeps its one line a problem.
inline constexpr std::int64_t kQuietNs = 1'500'000'000;
void Waiting(std::string_view what);

// Shown with -v only.
void Detail(std::string_view text);

}  // namespace tessera::base
