// What Tessera tells the person at the terminal, on stderr, one line a call, each in one write(2).
//
// Thread safety: all functions from any thread. Nothing is buffered, so a fork or exec loses
// nothing.
#pragma once

#include <string_view>

namespace tessera::base {

void SetVerbose(bool verbose);
bool Verbose();

// Always shown: "tessera: text".
void Say(std::string_view text);

// Shown with -v only.
void Detail(std::string_view text);

}  // namespace tessera::base
